"""Feed the jobs hostile messages by chance: packs in JSON and CBOR full of oddities, and bytes.

Each message must become rows or a dead letter with a reason; no batch may fail, no good pack may
suffer from its neighbours, and the quick way of reading a pack must say what the rules say.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import pyarrow as pa

from flatmq_rigs import results
from flatmq_tools import senml_cbor
from flatmq_tools.pipeline.jobs import parsing
from pipeline.messages import both_ways

BATCH = 1000  # documents of an Arrow batch
COMPARED = 8  # one document in so many is read both ways
NOW = 1_772_366_400_000_000  # us since 1970
GOOD = (
    b"dev/good/telemetry",
    b'[{"bn":"good/","n":"boot","v":7},{"n":"seq","v":9},{"n":"chip/temp","u":"Cel","v":21.50}]',
)
_REASON = 300

Document = tuple[bytes, bytes]


class Finding(Exception):
    """A message has done what none may do; the text has it."""


_NAMES = (
    "x", "boot", "seq", "chip/temp", "a/", "a/boot", "b/", "b/seq", "pico-1/", "", "/", "\ud83d",
    "\udc00x", "\N{GRINNING FACE}", "\0", "urn:dev:ow:10e2:", "ä", "a b", "$x$", "a" * 2000,
    "a/b/c/" * 30, ":", "\x7f", "boot/seq", "a//boot", "n" * 20_000,
)  # fmt: skip
_NUMBERS = (
    "0", "1", "-1", "1.0", "1.5", "-0.0", "2.0e0", "1e308", "9223372036854775807", "1" + "0" * 308,
    "9223372036854775808", "1073741823", "18446744073709551616", "1" + "0" * 400, "268435456",
    "268435455.9", "1772366400", "1772366400.000001", "4102444800", "-62135596800",
    "253402300799.9999999", "253402300800", "-63907963200", "1e15", "1e-7",
)  # fmt: skip
_KEYS = (
    "bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut", "x",
    "x_", "\ud83d", "\ud83d_", "", "bx", "V", "__class__", "\0", "k" * 3000, "b_", "_",
)  # fmt: skip
_TOPICS = (
    b"dev/a/telemetry", b"dev/b/telemetry", b"dev/pico-1/telemetry", b"x", b"", b"dev//telemetry",
    b"dev/a\x00b/telemetry", b"dev/\xff\xfe/telemetry", b"dev/\xed\xa0\xbd/telemetry",
    "dev/küche/telemetry".encode(), b"dev/$x_{$/telemetry", b"dev/" + b"n" * 9_000 + b"/telemetry",
    b"dev/a/b/c", b"dev/\n/telemetry", b"\xf0\x9f\x98", b"dev/\x1b[2J/telemetry",
)  # fmt: skip
_MILD_NAMES = ("x", "chip/temp", "a/level", "urn:dev:ow:10e2073a:t", "door", "a/b/c")
_MILD_NUMBERS = ("0", "1", "-1", "1.5", "27.60", "1772366400", "-60", "1e-7")
_ODDITY = (0.0, 0.0, 0.02, 0.2, 1.0)  # the share of what is odd in a document


class Form(NamedTuple):
    """The writing of packs in JSON or CBOR."""

    text: Callable[[str], bytes]
    number: Callable[[str], bytes]
    key: Callable[[str], bytes]
    many: Callable[[bytes, list[bytes]], bytes]
    odd: tuple[bytes, ...]
    """Values that need not be valid."""


def _many(ends: bytes, items: list[bytes]) -> bytes:
    """An array, or the fields of an object."""
    return ends[:1] + b",".join(items) + ends[1:]


# As text, so that it can have what json.dumps would not write.
JSON = Form(
    lambda text: json.dumps(text).encode(), str.encode,
    lambda key: json.dumps(key).encode() + b":", _many,
    tuple(text.encode("utf-8", "surrogatepass") for text in (
        "1e400", "-1e400", "1E-400", "9" * 4301, "NaN", "Infinity", "-Infinity", "01", "+1", ".5",
        "1.", "0x10", "true", "null", '"1"', "[]", "{}", "1e9999999999", '"\x00"', '"\n"', '"\\"',
        '"\ud83d"', '"\\uD8"', '"</script>"', '"' + "x" * 5000 + '"', "[" * 5 + "]" * 5,
        '{"a":{}}', "[1,2", "nul", "{", '"', "[" * 2000, '{"a":' * 50_000, '"é"',
    )),
)  # fmt: skip


def _cbor_text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"\x79" + len(data).to_bytes(2, "big") + data


_LABELS = {key: label for label, key in senml_cbor.LABELS.items()}
_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000, 55799)
_IN_TAGS = (5, -1, 1 << 64, 1e300, "x", "(", b"", b"\xff" * 200, [], [1, 0], [1 << 63, 7], {1: 2})
CBOR = Form(
    _cbor_text, lambda text: cbor2.dumps(float(text) if set("e.") & set(text) else int(text)),
    lambda key: cbor2.dumps(_LABELS[key]) if key in _LABELS else _cbor_text(key),
    lambda ends, items: bytes((0x80 | len(items) | 0x20 * (ends == b"{}"),)) + b"".join(items),
    (
        *(cbor2.dumps(value) for value in (
            float("nan"), float("inf"), 1 << 20_000, -(1 << 70), Decimal("27.60"), Fraction(1, 3),
            b"x", b"n" * 99, True, None, cbor2.undefined, [1], {"a": 1}, "n" * 2000, 1.5,
        )),
        *(cbor2.dumps(cbor2.CBORTag(tag, value)) for tag in _TAGS for value in _IN_TAGS),
        b"\xff", b"\x61\xff", b"\xf8\xff", b"\xf9\x7e\x00", b"\x9b" + b"\xff" * 8,
        b"\x5b\x7f" + b"\xff" * 7, b"\x7a\x80\0\0\0", b"\x5f\x41x\xff", b"\x7f\xff", b"\x9f\x01",
        b"\xbf\x01\xff",
        *(each * 3000 for each in (b"\x81", b"\x9f", b"\x81\xa1\0", b"\x81\xc1", b"\xd8\x1c\x81")),
    ),
)  # fmt: skip


def _field(chance: random.Random, key: str, odd: float, form: Form) -> bytes:
    """Return a field of a record, with a value of its kind or an odd one."""
    is_odd = chance.random() < odd
    if is_odd and chance.random() < 0.3:
        value = chance.choice(form.odd)
    elif key in ("n", "bn", "u", "bu", "vs", "vd"):
        value = form.text(chance.choice(_NAMES if is_odd else _MILD_NAMES))
        if key == "vd" and form is CBOR:
            value = b"\x41x"
    elif key == "vb":
        value = b"true" if form is JSON else b"\xf5"
    else:
        value = form.number(chance.choice(_NUMBERS if is_odd else _MILD_NUMBERS))
    return form.key(key) + value


def _pack(chance: random.Random, form: Form) -> bytes:
    """Return a pack: of a board, with its boot and its number, or without them."""
    odd = chance.choice(_ODDITY)
    records = []
    if chance.random() < 0.5:
        name = "a/" if chance.random() >= odd else chance.choice(("b/", "pico-1/", *_NAMES))
        for begin, n in (((("bn", name),), "boot"), ((), "seq")):
            fields = [form.key(key) + form.text(text) for key, text in (*begin, ("n", n))]
            records.append([*fields, _field(chance, "v", odd, form)])
    for _ in range(chance.randrange(not records, 5)):
        keys = ["n", chance.choice(("v", "v", "v", "vs", "vb", "vd", "s"))]
        keys += [key for key in ("t", "bt", "u", "bn", "bv", "other") if chance.random() < 0.15]
        if chance.random() < odd:
            keys[chance.randrange(len(keys))] = chance.choice(_KEYS)
            keys = keys[: chance.randrange(9)]
        chance.shuffle(keys)
        records.append([_field(chance, key, odd, form) for key in keys])
    if chance.random() < 0.01:  # a base name that is repeated in each record
        records = [[form.key("bn") + form.text("n" * chance.choice((10, 900, 1100)))]]
        records += [[form.key("v") + form.number("2")]] * chance.choice((5, 20))
    return form.many(b"[]", [form.many(b"{}", fields) for fields in records])


def _json(chance: random.Random) -> bytes:
    pack = _pack(chance, JSON) + b" " * chance.randrange(8)
    coding = chance.choice(("utf-8",) * 12 + ("utf-16", "utf-32", "utf-8-sig", "utf-16-le"))
    return pack.decode("utf-8", "surrogatepass").encode(coding, "surrogatepass")


def _cbor(chance: random.Random) -> bytes:
    return senml_cbor.SELF_DESCRIBED * (chance.random() < 0.2) + _pack(chance, CBOR)


_BOARD = (
    b'[{"bn":"a/","n":"boot","v":1,"bt":1772366400},{"n":"seq","v":1},{"n":"x","v":-1.5,"t":-3}]'
)
_INSERTED = (b"\\ud83d", b"\x00", b"9" * 30, b"e999", b"\xff", b'"', b"_", b"{}[]", b",")


def damaged(payload: bytes, chance: random.Random) -> bytes:
    """Return a document of which bytes are changed, lost, repeated or put in."""
    data = bytearray(payload)
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(len(data) or 1)
        data[at : at + chance.randrange(9)] = chance.choice(
            (chance.randbytes(1), b"", chance.choice(_INSERTED), data[at : at + 20] * 50)
        )
    return bytes(data)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "JSON": _json,
    "CBOR": _cbor,
    "damaged packs": lambda chance: damaged(
        chance.choice((_BOARD, _json(chance), _cbor(chance))), chance
    ),
    "bytes": lambda chance: chance.randbytes(chance.choice((0, 1, 2, 8, 60))),
}
_SHARES = (4, 3, 3, 1)


def documents(seed: int) -> Iterator[tuple[str, Document]]:
    """Messages without end, each with its kind."""
    chance = random.Random(seed)
    names = list(KINDS)
    while True:
        kind = chance.choices(names, _SHARES)[0]
        topic = chance.choice(
            (b"dev/a/telemetry", b"dev/a/telemetry", b"dev/good/telemetry", b"x")
        )
        if chance.random() < 0.2:
            topic = chance.choice(_TOPICS)
        yield kind, (topic, KINDS[kind](chance))


def said(of: list[Document], bound: bool = True) -> list[list[dict[str, Any]]]:
    """Return what the job makes of a batch. Raises Finding if it fails."""
    topics = pa.array([d[0] for d in of], pa.binary())
    messages = {
        "topic": pa.Array.from_buffers(pa.string(), len(of), topics.buffers()),
        "payload": pa.array([d[1] for d in of], pa.binary()),
        "timestamp": pa.array([NOW] * len(of), pa.timestamp("us", "UTC")),
        "offset": pa.array(range(len(of)), pa.int64()),
    }
    reader = parsing.Reader(parsing.Reads("topic" if bound else "payload", ["#"]))
    try:
        packs, position = reader.packs(pa.RecordBatch.from_pydict(messages))
        found: list[list[dict[str, Any]]] = [[] for _ in of]
        for n, pack in zip(position.tolist(), packs.to_pylist(), strict=True):
            found[n].append(pack)
    except Exception as error:
        if len(of) == 1:
            raise Finding(f"{of[0]!r}: {type(error).__name__}: {error}") from error
        for one in of:
            said([one], bound)
        raise Finding(f"a batch fails, and none of it alone: {error}") from error
    return found


def check(document: Document, packs: list[dict[str, Any]]) -> bool:
    """Return whether it is a dead letter. Raises Finding if it is neither that nor packs."""
    reasons = [pack["reason"] for pack in packs if pack["reason"] is not None]
    if not packs or (reasons and len(packs) > 1):
        raise Finding(f"{document!r}: {len(packs)} packs, reasons {reasons}")
    if reasons and not 0 < len(reasons[0]) <= _REASON:
        raise Finding(f"{document!r}: a reason of {len(reasons[0])} characters")
    if not reasons and any(p["device"] is None or p["time"] is None for p in packs):
        raise Finding(f"{document!r}: a pack without a device or a time")
    return bool(reasons)


def run(count: int, seed: int, every: Callable[[int], object] = lambda _: None) -> Counter[str]:
    """Feed so many; returns how many there were of each kind, and of those dead letters."""
    counts: Counter[str] = Counter()
    source = documents(seed)
    for begin in range(0, count, BATCH):
        kinds, batch = zip(*(next(source) for _ in range(min(BATCH, count - begin))), strict=True)
        bound = begin // BATCH % 4 != 3
        *found, good = said([*batch, GOOD], bound)
        if good[0]["device"] != "good" or good[0]["records"][0]["value"] != 21.5:
            raise Finding(f"a good pack suffers: {good}")
        for n, (kind, document, packs) in enumerate(zip(kinds, batch, found, strict=True)):
            dead = check(document, packs)
            counts[kind] += 1
            counts[f"dead {kind}"] += dead
            if n % COMPARED == 0:
                at_once, resolved = both_ways(*document, NOW, bound)
                if at_once != resolved:
                    raise Finding(f"{document!r}: at once {at_once}, by the rules {resolved}")
        every(len(batch))
    return counts


def section(seed: int, seconds: float, counts: Counter[str]) -> str:
    """The figures, for docs/results.md."""
    rows = [[kind, f"{counts[kind]:,}", f"{counts[f'dead {kind}']:,}"] for kind in KINDS]
    total = sum(counts[kind] for kind in KINDS)
    rows.append(["all", f"{total:,}", f"{sum(counts[f'dead {kind}'] for kind in KINDS):,}"])
    return f"""
## Hostile messages in the pipeline

`python -m flatmq_rigs fuzz-packs`: seed {seed}, {seconds:,.0f} s. Each message, made by a grammar
and some of them damaged, became rows or a dead letter with a reason, and no batch failed. One in
{COMPARED} was also read by the rules of SenML, with the same result.

{results.table(["", "messages", "of these dead letters"], rows)}
"""


def main() -> int:
    """Run it; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="fuzz_packs.py", description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="the same one repeats the run")
    parser.add_argument("--results", type=Path, help="the file that the figures go to")
    options = parser.parse_args()
    from rich.console import Console
    from rich.progress import Progress

    console = Console()
    began = time.monotonic()
    try:
        with Progress(console=console) as shown:
            task = shown.add_task("messages", total=options.documents)
            counts = run(options.documents, options.seed, lambda n: shown.advance(task, n))
    except Finding as error:
        console.print(str(error)[:4000], markup=False, highlight=False, soft_wrap=True)
        return 1
    text = section(options.seed, time.monotonic() - began, counts)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    if options.results:
        results.write(options.results, "fuzz-packs", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
