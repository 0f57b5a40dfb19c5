"""MQTTClient of umqtt.robust: like the one in `flatmq.umqtt`, but it reconnects.

A program for umqtt.robust changes one line: `from flatmq.umqtt_robust import MQTTClient`. See
`flatmq.umqtt` for the improvements and differences.
"""

import time

from . import umqtt
from .umqtt import MQTTException  # noqa: F401 (for programs)


class MQTTClient(umqtt.MQTTClient):
    """A client whose publish, wait_msg and check_msg reconnect when the connection is lost.

    Override `delay`, `log`, `reconnect` or `connect` to change how. The three calls above raise
    MQTTException if the broker refuses the connection. An OSError from the callback is logged, but
    is no reason to reconnect.
    """

    DELAY = 2  # s between two tries
    DEBUG = False  # whether `log` prints

    _publish_topic: "bytes | str" = b""  # the message being published
    _publish_msg: "bytes | str" = b""
    _op: "int | None" = None  # the first byte of the PUBLISH received last

    def delay(self, i: int) -> None:
        """Wait after the i-th failed try, counted from 1."""
        time.sleep(self.DELAY)

    def log(self, in_reconnect: bool, e: Exception) -> None:
        """Print an error if DEBUG is set."""
        if self.DEBUG:
            print("mqtt reconnect:" if in_reconnect else "mqtt:", repr(e))

    def reconnect(self) -> int:
        """Call connect(False) until it succeeds, however long that takes. Returns its result."""
        tries = 0
        while True:
            try:
                return self.connect(False)
            except OSError as e:
                self.log(True, e)
            tries += 1
            self.delay(tries)

    def publish(
        self, topic: "bytes | str", msg: "bytes | str", retain: bool = False, qos: int = 0
    ) -> None:
        """Publish a message, again after each reconnect, until it succeeds.

        At QoS 1 and 2 the broker gets it at least once. ValueError or TypeError for a bad
        argument.
        """
        while True:
            self.publish_flags = qos << 1 | bool(retain)
            self._publish_topic = topic
            self._publish_msg = msg
            if self._published():
                break
            self._recover()
        self._publish_msg = b""  # it may be large

    def wait_msg(self) -> "int | None":
        """Wait for a message, and call the callback; see `flatmq.umqtt`."""
        while not self._received(None):
            self._recover()
        return self._op

    def check_msg(self, attempts: int = 2) -> "int | None":
        """Call the callback if a message has come in; see `flatmq.umqtt`.

        Tries `attempts` times, and reconnects after each failure.
        """
        while attempts:
            if self._received(0):
                return self._op
            self._recover()
            attempts -= 1
        return None

    # Arguments, or a name for the exception, would put the frame on the heap.

    def _published(self):
        try:
            self.publish_once(self._publish_topic, self._publish_msg)
        except OSError:
            return False
        return True

    def _received(self, ms):
        try:
            self._op = self.receive_once(ms)
        except OSError:
            return False
        return True

    def _recover(self):
        if self.error:
            self.log(False, self.error)
            self.reconnect()
        else:
            self.log(False, OSError(-1, "the callback raised OSError"))
