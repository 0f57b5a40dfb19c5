"""Give up requests larger than the broker's Maximum Packet Size (MQTT 5 section 3.2.2.3.6).

Loaded at a CONNACK with a limit below `tx_size`, and not kept.
"""

from .port import const
from .unload import unload

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


def refuse(router: "Any", most: int, same: int) -> None:
    """Give up requests of more than `most` bytes.

    They are those about to go. All subscriptions are to go, unless it is the `same` session.
    """
    from .requests import packet

    for r in (router.requests if same else router.subscriptions)[:]:
        if len(packet(r)) > most:
            _give_up(router, r, f"the broker takes packets of at most {most} bytes")
    unload("v5_oversized", "subscribing")


def _give_up(router, r, why):
    """Forget a request, and report each of its topic filters."""
    from .subscribing import keep

    c = router.client
    if r.id:
        c.ids.remove(r.id)
        r.id = 0
    r.granted = b"\x95" * len(r.filters)
    router.requests[:] = [x for x in router.requests if x is not r]
    keep(router, [x for x in router.subscriptions if x is not r])
    c.stats.dropped += len(r.filters) > 0  # else it was withdrawn meanwhile
    if c.on_dropped:
        for f in r.filters:
            c.on_dropped(0, f, why)
