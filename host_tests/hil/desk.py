"""The desk's end of the broker: a client of another make, which counts what a board sends."""

from observer import Observer


class DeskError(RuntimeError):
    """The broker cannot be reached from here."""


class Desk(Observer):
    """Hears the numbers that arrive under the topic `token`; use it as a context manager."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._token = token
        try:
            super().__init__(host, port, f"{token}/#", qos=2)
        except OSError as error:
            raise DeskError(f"no broker answers here at {host}:{port} ({error})") from error
        except AssertionError as error:
            raise DeskError("the broker does not let this machine subscribe") from error

    def _numbers(self, topic: str) -> list[int]:
        return list(map(int, self.payloads(f"{self._token}/{topic}")))

    def missing(self, topic: str, count: int) -> list[int]:
        """Return which numbers below `count` have not arrived.

        It returns when nothing new has come for a while, or as soon as all are there.
        """
        with self.changed:
            while True:
                left = sorted(set(range(count)) - set(self._numbers(topic)))
                if not left or not self.changed.wait(5):
                    return left

    def repeated(self, topic: str) -> int:
        """Messages that came more than once."""
        numbers = self._numbers(topic)
        return len(numbers) - len(set(numbers))
