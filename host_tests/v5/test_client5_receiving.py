"""Receiving: topic names as they are.

../hostile has properties, and what a broker passes on that breaks a rule.
"""

from packets import build
from unit.fake_link import Clock
from v5.clients5 import Bench5, Inbox


def test_a_byte_order_mark_is_part_of_a_topic_name(clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    marked, plain = Inbox(), Inbox()
    bench.client.subscribe(b"\xef\xbb\xbft", marked)
    bench.client.subscribe(b"t", plain)
    bench.feed(build.publish(b"\xef\xbb\xbft", b"x"))
    assert (marked.payloads, plain.payloads) == ([b"x"], [])
