"""aedes, a broker for Node.js, on loopback: it disconnects a client for a message it refuses.

`make aedes` installs it in build/aedes.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from flatmq_tools.broker import LOOPBACK, Broker, BrokerError

HERE = Path(__file__).parent
INSTALLED = HERE.parent / "build" / "aedes"
FORBIDDEN = b"forbidden"  # the last level of topics that nobody may publish to
_STOP = 10.0  # seconds that it may take to end


class Aedes(Broker):
    """A running aedes; it forgets everything when it ends."""

    kind = "aedes"

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None or not (INSTALLED / "node_modules" / "aedes").is_dir():
            raise BrokerError("aedes is missing: install Node.js 20 or later, then `make aedes`")
        self._folder = tempfile.TemporaryDirectory(prefix="flatmq-aedes-")
        self._log = Path(self._folder.name, "log.txt")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [node, str(HERE / "aedes_broker.mjs"), str(INSTALLED)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        if not port:
            log_text = self.log()
            self.stop()
            raise BrokerError(f"aedes did not start:\n{log_text}")
        super().__init__(LOOPBACK, int(port))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_STOP)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def stop(self) -> None:
        self.kill()
        self._folder.cleanup()

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""
