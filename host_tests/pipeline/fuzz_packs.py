"""Feed the jobs hostile messages by chance.

They are packs in JSON and CBOR, made by a grammar of oddities and spoilt by mutation, and plain
bytes, on topic names of every kind.

    fuzz_packs.py --documents 1000000 --results docs/results.md

Each message must become rows or a dead letter with a reason, whatever it is; no batch may fail, no
good pack may suffer from its neighbours, and the quick way of reading a pack must say the same as
the rules of SenML.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import pyarrow as pa

from flatmq_rigs import results
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


# The grammar: JSON as text, so that it can have what json.dumps would not write.

_NAMES = (
    "x", "boot", "seq", "chip/temp", "a/", "a/boot", "b/", "b/seq", "pico-1/", "", "/", "\\ud83d",
    "\\udc00x", "\\ud83d\\ude00", "\\u0000", "urn:dev:ow:10e2:", "ä", "a b", "$x$", "a" * 2000,
    "a/b/c/" * 30, ":", "\x7f", "\ud83d", "boot/seq", "a//boot",
)  # fmt: skip
_NUMBERS = (
    "0", "1", "-1", "1.0", "1.5", "-0.0", "2.0e0", "1e400", "-1e400", "1e308", "1E-400", "27.60",
    "9223372036854775807", "9223372036854775808", "1073741823", "18446744073709551616",
    "1" + "0" * 308, "1" + "0" * 400, "9" * 4301, "NaN", "Infinity", "-Infinity", "01", "+1", ".5",
    "1.", "0x10", "true", "null", '"1"', "[]", "{}", "1e9999999999", "268435456", "268435455.9",
    "1772366400", "1772366400.000001", "4102444800", "-62135596800", "253402300799.9999999",
    "253402300800", "-63907963200", "1e15", "1e-7",
)  # fmt: skip
_TEXTS = (
    '""', '"hi"', '"\\ud83d"', '"\\ude00\\ud83d"', '"\\ud83d\\ude00"', '"\\u0000"', '"\x00"',
    '"\n"', '"\\"', '"' + "é" * 500 + '"', "1", "null", "true", "[[]]", '"\ud83d"',
    '"\\uD8"', '"%s"', '"\\u2028"', '"</script>"', '"' + "x" * 5000 + '"',
)  # fmt: skip
_KEYS = (
    "bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut", "x",
    "x_", "\\ud83d", "\\ud83d_", "", "bx", "V", "__class__", "\\u0000", "k" * 3000, "b_", "_",
)  # fmt: skip
_NUMBER_KEYS = {"bt", "bv", "bs", "bver", "v", "s", "t", "ut"}
_TOPICS = (
    b"dev/a/telemetry", b"dev/b/telemetry", b"dev/pico-1/telemetry", b"x", b"", b"dev//telemetry",
    b"dev/a\x00b/telemetry", b"dev/\xff\xfe/telemetry", b"dev/\xed\xa0\xbd/telemetry",
    "dev/küche/telemetry".encode(), b"dev/$x_{$/telemetry", b"dev/" + b"n" * 9_000 + b"/telemetry",
    b"dev/a/b/c", b"dev/\n/telemetry", b"\xf0\x9f\x98", b"dev/\x1b[2J/telemetry",
)  # fmt: skip


_MILD_NAMES = ("x", "chip/temp", "a/level", "urn:dev:ow:10e2073a:t", "door", "a/b/c")
_MILD_NUMBERS = ("0", "1", "-1", "1.5", "27.60", "2.0e0", "1772366400", "-60", "1e-7")
_NESTED = ("[" * 5 + "]" * 5, '{"a":{}}', "null", "[1,2", "nul", "{", '"')
_ODDITY = (0.0, 0.0, 0.02, 0.2, 1.0)  # the share of what is odd in a document


def _field(chance: random.Random, key: str, odd: float) -> str:
    """Return a field of a record, with a value of its kind or an odd one."""
    is_odd = chance.random() < odd
    if is_odd and chance.random() < 0.2:
        value = chance.choice(_NESTED + _TEXTS + _NUMBERS)
    elif key in ("n", "bn", "u", "bu"):
        value = f'"{chance.choice(_NAMES if is_odd else _MILD_NAMES)}"'
    elif key == "vb":
        value = "true"
    elif key in _NUMBER_KEYS:
        value = chance.choice(_NUMBERS if is_odd else _MILD_NUMBERS)
    else:
        value = chance.choice(_TEXTS if is_odd else _TEXTS[:6])
    return f'"{key}":{value}'


def _records(chance: random.Random) -> str:
    """Return a pack: of a board, with its boot and its number, or without them."""
    odd = chance.choice(_ODDITY)
    records = []
    if chance.random() < 0.5:
        name = "a" if chance.random() >= odd else chance.choice(("b", "pico-1", *_NAMES))
        boot = f'"bn":"{name}/","n":"boot",{_field(chance, "v", odd)}'
        records += [[boot], ['"n":"seq"', _field(chance, "v", odd)]]
    for _ in range(chance.randrange(not records, 5)):
        keys = ["n", chance.choice(("v", "v", "v", "vs", "vb", "s"))]
        keys += [key for key in ("t", "bt", "u", "bn", "bv", "other") if chance.random() < 0.15]
        if chance.random() < odd:
            keys[chance.randrange(len(keys))] = chance.choice(_KEYS)
            keys = keys[: chance.randrange(9)]
        chance.shuffle(keys)
        records.append([_field(chance, key, odd) for key in keys])
    objects = ("{" + ",".join(fields) + "}" for fields in records)
    return f"[{','.join(objects)}]" + " " * chance.randrange(8)


def _json(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.95:
        text = _records(chance)
    elif kind < 0.97:
        deep = chance.choice((10, 500, 2000, 50_000))
        text = chance.choice(("[", '{"a":', '[{"vs":', '[{"n":"x","v":1,"z":[')) * deep
    else:
        # A base name that is repeated in each record.
        text = f'[{{"bn":"{"n" * chance.choice((10, 900, 1100, 20_000))}","v":1}}'
        text += ',{"v":2}' * chance.choice((5, 300)) + "]"
    coding = chance.choice(("utf-8",) * 12 + ("utf-16", "utf-32", "utf-8-sig", "utf-16-le"))
    return text.encode(coding, "surrogatepass")


# CBOR, an item at a time: as bytes, since an encoder would refuse most of it.


def _head(chance: random.Random, major: int, number: int) -> bytes:
    """The head of an item, sometimes longer than need be, or with a length that is not so."""
    if chance.random() < 0.03:
        number = chance.choice((0, number + 1 & 0xFF, 0xFFFF, 1 << 31, (1 << 64) - 1))
    if number < 24 and chance.random() < 0.9:
        return bytes([major << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size and chance.random() < 0.8:
            return bytes([major << 5 | code]) + number.to_bytes(size, "big")
    return bytes([major << 5 | 27]) + number.to_bytes(8, "big")


_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 43000, 100, 256, 258, 260, 261, 1004, 55799)
_INTEGERS = (0, 1, 5, 6, 23, 24, 200, 255, 1 << 31, (1 << 64) - 1)
_STRINGS = (b"", b"x", b"a/", b"\xff", b"\xed\xa0\xbd", b"\x00", b"boot", b"n" * 99)
_SIMPLE = (
    *(b"\xfb" + struct.pack(">d", value) for value in (1.5, float("nan"), float("inf"), 1e300)),
    b"\xf4", b"\xf5", b"\xf6", b"\xf7", b"\xf8\xff", b"\xf9\x7e\x00", b"\xff",
    *(tag + b"\x59" + size.to_bytes(2, "big") + b"\xff" * size
      for tag in (b"\xc2", b"\xc3") for size in (1, 200, 3000)),
)  # fmt: skip


def _item(chance: random.Random, depth: int = 0) -> bytes:
    flat, deep = ("integer", "string", "simple"), ("tag", "many", "endless")
    kind = chance.choice(flat + deep * (depth < 4))
    if kind == "integer":
        return _head(chance, chance.randrange(2), chance.choice(_INTEGERS))
    if kind == "string":
        data = chance.choice(_STRINGS)
        return _head(chance, chance.choice((2, 3)), len(data)) + data
    if kind == "simple":
        return chance.choice(_SIMPLE)
    if kind == "tag":
        return _head(chance, 6, chance.choice(_TAGS)) + _item(chance, depth + 1)
    count, major = chance.randrange(4), chance.choice((4, 5))
    if kind == "many":
        items = (_item(chance, depth + 1) for _ in range(count * (major - 3)))
        return _head(chance, major, count) + b"".join(items)
    items = (_item(chance, depth + 1) for _ in range(count))
    begin = chance.choice((b"\x5f", b"\x7f", b"\x9f", b"\xbf"))
    return begin + b"".join(items) + b"\xff" * (count != 1)


def _mild_cbor(chance: random.Random) -> bytes:
    """A pack without a fault, or with an odd value, label or byte."""
    records: list[dict[Any, Any]] = [{-2: "a/", 0: "boot", 2: 1}, {0: "seq", 2: 5.0}]
    records = records * (chance.random() < 0.5) + [
        {0: chance.choice(_MILD_NAMES), 2: chance.choice((1, 1.5, -7, 1 << 40, 1e9))}
        for _ in range(chance.randrange(1, 4))
    ]
    one = chance.choice(records)
    odd = (float("nan"), 1 << 2000, "x", b"x", True, None, [1], {"a": 1}, "n" * 2000, -(1 << 70))
    way = chance.random()
    if way < 0.2:
        one[chance.choice((*_LABELS, "v"))] = chance.choice(odd)
    elif way < 0.4:
        one[chance.choice((-3, 6, 5, -5))] = chance.choice((-60, 1.25, 1772366400, 4102444800))
    data = bytearray(cbor2.dumps(records))
    if chance.random() < 0.2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


_LABELS = range(-6, 10)


def _cbor(chance: random.Random) -> bytes:
    """An array of maps with the labels of SenML, mostly."""
    if chance.random() < 0.5:
        return _mild_cbor(chance)
    if chance.random() < 0.02:
        deep = (b"\x81", b"\x9f", b"\x81\xa1\x00", b"\x81\xc1", b"\x81\xd8\x1c")
        return chance.choice(deep) * 3000
    records = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        fields = []
        for _ in range(chance.choice((1, 2, 2, 3, 4))):
            label = chance.choice((*_LABELS, 0, 2))
            value = _item(chance)
            if label in (0, -2, 1, -4, 3) and chance.random() < 0.7:
                text = chance.choice(_NAMES).encode("utf-8", "surrogatepass")
                value = _head(chance, 3, len(text)) + text
            fields.append(_head(chance, *((0, label) if label >= 0 else (1, -1 - label))) + value)
        records.append(_head(chance, 5, len(fields)) + b"".join(fields))
    mark = b"\xd9\xd9\xf7" * (chance.random() < 0.2)
    return mark + _head(chance, 4, len(records)) + b"".join(records)


_SEEDS = [
    GOOD[1],
    b'[{"bn":"a/","n":"boot","v":1,"bt":1772366400},{"n":"seq","v":1},{"n":"x","v":-1.5,"t":-3}]',
    b'[{"n":"urn:dev:ow:10e2073a01080063","u":"Cel","v":23.1}]',
    cbor2.dumps([{-2: "a/", 0: "boot", 2: 1}, {0: "seq", 2: 2}, {0: "t", 1: "Cel", 2: 21.5}]),
]
_INSERTED = (b"\\ud83d", b"\x00", b"9" * 30, b"e999", b"\xff", b'"', b"_")


def _mutated(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(_SEEDS))
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(len(data) or 1)
        data[at : at + chance.randrange(9)] = chance.choice(
            (chance.randbytes(1), b"", chance.choice(_INSERTED), data[at : at + 20] * 50)
        )
    return bytes(data)


def _bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 2, 8, 60)))


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "JSON by the grammar": _json,
    "CBOR by the grammar": _cbor,
    "packs that were changed": _mutated,
    "bytes": _bytes,
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


# What must be so


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


def _both_ways(document: Document, bound: bool) -> None:
    at_once, resolved = both_ways(*document, NOW, bound)
    if at_once != resolved:
        raise Finding(f"{document!r}: read at once {at_once}, by the rules {resolved}")


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
            if dead:
                counts[f"reason {_kind(packs[0]['reason'])}"] += 1
                if "Error: " in packs[0]["reason"]:  # of the net under all of the reasons
                    counts["caught by the last resort"] += 1
            if n % COMPARED == 0:
                _both_ways(document, bound)
        every(len(batch))
    return counts


def _kind(reason: str) -> str:
    return reason.partition(":")[0].partition(" ")[0]


def section(seed: int, seconds: float, counts: Counter[str]) -> str:
    """The figures, for docs/results.md."""
    rows = [[kind, f"{counts[kind]:,}", f"{counts[f'dead {kind}']:,}"] for kind in KINDS]
    total = sum(counts[kind] for kind in KINDS)
    rows.append(["all", f"{total:,}", f"{sum(counts[f'dead {kind}'] for kind in KINDS):,}"])
    return f"""
## Hostile messages in the pipeline

`python -m flatmq_rigs fuzz-packs`: seed {seed}, {seconds:,.0f} s. Each message, made by a grammar
and by mutation, became rows or a dead letter with a reason, and no batch failed. One in {COMPARED}
was also read by the rules of SenML, with the same result.

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
    reasons = {k[7:]: n for k, n in counts.most_common() if k.startswith("reason ")}
    console.print(json.dumps(reasons, indent=1), markup=False, highlight=False)
    if options.results:
        results.write(options.results, "fuzz-packs", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
