"""The ingest inside a run: it receives in this process, and lands what came at each trigger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ..trust import TrustError
from . import landing
from .ingest import IngestError, by_settings
from .log import LogError, Writer
from .options import OptionError, parse, with_defaults

_STOP = 8.0  # s that the end may take; what has not landed then is in the log


class ReceivingError(RuntimeError):
    """Receiving cannot begin, or has ended; the text says why."""


class Receiving:
    """Threads that receive from a broker, and land in the table raw of `out`.

    options  those of format("mqtt")
    folder   that of the log, unless localStorage names another one
    every    s between two commits
    say      takes a line for people

    Raises ReceivingError.
    """

    def __init__(
        self, options: Mapping[str, str], folder: Path, out: str, every: float,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        try:
            settings = parse(with_defaults(options, {"localStorage": str(folder)}))
            for remark in settings.remarks:
                say(remark)
            self._log = Writer(settings.local_storage, settings.log_limit)
            try:
                ingest = by_settings(settings, self._log, say)
                self.service = landing.Service(
                    ingest, landing.Landing(self._log, out), every_s=every, say=say
                )
            except BaseException:
                self._log.close()
                raise
        except (OptionError, TrustError, LogError, landing.LandingError) as error:
            raise ReceivingError(str(error)) from error
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="receiving", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as error:
            self._failed = error

    @property
    def received(self) -> int:
        """Messages received since the start."""
        return self.service.ingest.client.messages

    @property
    def landed(self) -> int:
        """Messages in the table raw since the start."""
        return self.service.landing.messages

    def check(self) -> None:
        """Raise ReceivingError if receiving has ended, or if the broker refuses the client."""
        try:
            if self._failed is not None:
                raise self._failed
            self.service.ingest.check()
        except (IngestError, LogError) as error:
            raise ReceivingError(str(error)) from error
        except BaseException as error:
            raise ReceivingError(f"receiving has ended: {error!r}") from error

    def finish(self) -> None:
        """Disconnect, and land what came."""
        self.service.stop()
        self._thread.join()

    def stop(self) -> None:
        """Do the same for a while, and release the log. May be called again."""
        self.service.stop()
        self._thread.join(_STOP)
        self._log.close()
