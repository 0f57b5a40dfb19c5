"""The verdict on a soak: figures, each with its required value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import plan
from .books import Books

# ms: a poll that waits for a link that fell silent does so until somebody else ends it; one that
# only did not get the processor comes back long before.
HANG = 5000
REASONS = ("closed", "timeout", "refused", "protocol", "resource", "tls")  # kinds of MQTTError


@dataclass(frozen=True)
class Figure:
    """One line: a name, the figure, the required value if any, and whether it holds."""

    name: str
    text: str
    wanted: str = ""
    ok: bool = True


def _text(values: Sequence[int]) -> str:
    return " / ".join(f"{value:,}" for value in values)


def _shown(name: str, *values: int) -> Figure:
    return Figure(name, _text(values))


def _exactly(name: str, wanted: Sequence[int], *values: int) -> Figure:
    return Figure(name, _text(values), _text(wanted), tuple(values) == tuple(wanted))


class Verdict:
    """A verdict on `messages` each way.

    It is made of what the host `sent`, its `books`, what the device `told` at its end by name,
    the numbers of QoS 2 messages that were `republished`, by the client, on how many connections,
    and by the broker, and the `seconds` from the first message to the last. Over TLS, at most
    `broken_off` handshakes met a fault; None over other links.
    """

    def __init__(
        self,
        messages: int,
        sent: int,
        books: Books,
        told: Mapping[str, Sequence[int]],
        republished: tuple[int, int, int],
        seconds: float,
        broken_off: int | None = None,
    ) -> None:
        self.figures = [
            *_messages(messages, sent, books, told, republished),
            *_connections(books, told, broken_off),
            *_memory(told),
            _shown("seconds", round(seconds)),
            _shown("messages per second, each way", round(messages / seconds)),
        ]

    @property
    def ok(self) -> bool:
        """True if every figure is as required."""
        return all(figure.ok for figure in self.figures)


def _messages(
    messages: int,
    sent: int,
    books: Books,
    told: Mapping[str, Sequence[int]],
    republished: tuple[int, int, int],
) -> list[Figure]:
    """Two numbers each: from the device to the desk, and from the desk to the device."""
    up = books.arrivals
    again, missing = told["again"], told["missing"]
    # The device has one number per QoS: what it had left out counts as lost though it came late.
    came = [told["next"][qos] - missing[qos] for qos in plan.QOS]
    lost = [plan.count(messages, qos) - came[qos] for qos in plan.QOS]
    both = (0, 0)
    # Twice, and published again after PUBREL: see `republished`. The client may do so only on
    # connections whose session it knows to be in doubt.
    doubt = min(republished[0], up[2].again) if republished[1] <= told["doubts"][0] else 0
    theirs = min(republished[2], again[2])
    return [
        _exactly("sent", (messages, messages), told["sent"][0], sent),
        _shown("received", books.came, sum(came)),
        _exactly("lost at QoS 2", both, up[2].lost, lost[2]),
        _exactly("lost at QoS 1", both, up[1].lost, lost[1]),
        _shown("lost at QoS 0", up[0].lost, lost[0]),
        _exactly("repeated at QoS 2", both, up[2].again - doubt, again[2] - theirs),
        _shown("… after a CONNECT without an answer / by mosquitto after PUBREL", doubt, theirs),
        _shown("repeated at QoS 1", up[1].again, again[1]),
        _exactly("repeated at QoS 0", both, up[0].again, again[0]),
        _exactly("out of order at QoS 2", both, up[2].late, missing[2]),
        _exactly("out of order at QoS 1", both, up[1].late, missing[1]),
        _exactly("out of order at QoS 0", both, up[0].late, 0),
        _exactly("not what was sent", both, books.wrongs, told["wrong"][0]),
    ]


def _connections(
    books: Books, told: Mapping[str, Sequence[int]], broken_off: int | None
) -> list[Figure]:
    connects, losses, resent, renewed = told["stats"]
    strays, skipped, unrouted = told["odd"]
    kinds = dict(zip(REASONS, told["kinds"], strict=True))
    # A connection that ends takes what is on its way, which is one row of messages without a gap.
    # mosquitto 2.0.11 keeps the one that it could not write any more, drops what is published
    # while the device is away, and sends that one with the rest: two rows.
    rows = (books.arrivals[0].gaps, told["rows"][0])
    most = (losses, 2 * losses)
    longest, slow = told["longest"]
    before, after = told["files"]
    return [
        Figure(
            "rows of messages lost at QoS 0",
            _text(rows),
            f"up to {_text(most)}",
            rows[0] <= most[0] and rows[1] <= most[1],
        ),
        Figure("reconnects", f"{connects - 1:,}", "1 or more", connects > 1),
        _shown("connections lost, or not made", losses),
        _shown("… closed / timed out", kinds["closed"], kinds["timeout"]),
        *_handshakes(kinds["tls"], broken_off),
        _exactly(
            "… refused / for a broken rule / for lack of room",
            (0, 0, 0),
            kinds["refused"],
            kinds["protocol"],
            kinds["resource"],
        ),
        _shown("publishes sent again with DUP, or as PUBREL", resent),
        _exactly("publishes sent as new", (0,), renewed),
        _exactly("messages skipped / for nobody", (0, 0), skipped, unrouted),
        _shown("acknowledgements that nothing waited for", strays),
        Figure("longest poll(20), ms", f"{longest:,}", f"up to {HANG:,}", longest <= HANG),
        _shown("polls that took longer than 40 ms", slow),
        _exactly("file descriptors before / after", (before, before), before, after),
    ]


def _handshakes(failed: int, broken_off: int | None) -> list[Figure]:
    """A handshake fails when the link breaks in it, and for no other reason."""
    if broken_off is None:
        return []
    wanted = f"up to {broken_off:,}"
    return [Figure("… in the TLS handshake", f"{failed:,}", wanted, failed <= broken_off)]


def _memory(told: Mapping[str, Sequence[int]]) -> list[Figure]:
    before, after, held, most = told["heap"]
    steady, turns = told["steady"]
    return [
        _exactly("heap held before / after, bytes", (before, before), before, after),
        _shown("most ever held, bytes", held),
        _shown("most ever in use, garbage of reconnects included, bytes", most),
        _exactly("allocated while online, bytes", (0,), steady),
        Figure("turns of the loop while online", f"{turns:,}", "1 or more", turns > 0),
    ]
