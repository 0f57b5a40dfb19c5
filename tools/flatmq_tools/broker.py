"""MQTT brokers on loopback: a real mosquitto, the embedded rumqttd, or one that already runs.

What each of them does differently from the standard is in docs/brokers.md.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from . import interpreter, ports
from .address import address as parsed
from .errors import ToolError
from .ports import LOOPBACK

START_TIMEOUT = 20.0  # seconds until a broker must accept connections
_RETRY = 0.01  # seconds between two connection attempts while it starts

# Debian and Homebrew put the daemon where an ordinary user's PATH does not look.
_SBIN = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/usr/local/opt/mosquitto/sbin")


class BrokerError(ToolError):
    """A broker could not be found or started; the text says what to do."""


def find_mosquitto() -> str | None:
    """Path of mosquitto: $MOSQUITTO, else PATH, else the usual sbin folders; None without one."""
    named = os.environ.get("MOSQUITTO")
    if named:
        return named
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=os.pathsep.join(_SBIN))


class Broker:
    """A broker at `host`:`port`; `kind` is "mosquitto", "embedded" or "external".

    As a context manager it is stopped, and its files removed, at the end of the block.
    """

    kind = "external"

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @property
    def address(self) -> str:
        """The address as `host:port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def running(self) -> bool:
        """Return whether something accepts connections at the address."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2):
                return True
        except (OSError, UnicodeError):  # what cannot be a name is no OSError
            return False

    @property
    def pid(self) -> int | None:
        """The process id of a broker that was started here and runs, else None."""
        return None

    @property
    def status(self) -> int | None:
        """Return the exit status of a broker started here that has ended; None otherwise.

        The status is negative for a signal.
        """
        return None

    def freeze(self) -> None:
        """Stop it with SIGSTOP: connections stay open and nothing is answered (POSIX).

        `kill` and `restart` work on a frozen broker too.
        """
        raise BrokerError(f"the broker at {self.address} was not started here: cannot freeze it")

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut would; only for a broker started here."""
        raise BrokerError(f"the broker at {self.address} was not started here: cannot kill it")

    def restart(self) -> None:
        """Kill it if it runs, then start it on the same port with the same files."""
        raise BrokerError(f"the broker at {self.address} was not started here: cannot restart it")

    def stop(self) -> None:
        """End it and remove its files; may be called again."""

    def log(self) -> str:
        """Return the broker's log so far, for a failing test; empty for an external broker."""
        return ""

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self.kind} broker at {self.address}>"


class _Child(Broker):
    """A broker that is a child process with its files in a temporary folder."""

    def __init__(self, port: int, where: Path | None = None) -> None:
        super().__init__(LOOPBACK, port)
        self.folder = Path(tempfile.mkdtemp(prefix=f"flatmq-{self.kind}-", dir=where))
        self._log = self.folder / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._held: list[ports.HeldPort] = []

    def _configure(self) -> None:
        """Write the files for `self.port`."""
        raise NotImplementedError

    def _listens_at(self) -> list[int]:
        """Return the ports that stay its own while it is dead."""
        return [self.port]

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process, its output going to `log`."""
        raise NotImplementedError

    def _released(self) -> None:
        """Called when the process is dead and not yet reaped."""

    def start(self) -> None:
        """Start it and return once it accepts connections. Raises BrokerError when it does not."""
        if not self.port:
            self._held.append(ports.HeldPort())
            self.port = self._held[0].number
        for port in self._listens_at()[len(self._held) :]:
            with contextlib.suppress(OSError):  # its own error says more
                self._held.append(ports.HeldPort(port))
        self._configure()
        try:
            self._start_once()
        except BrokerError:
            self.stop()
            raise

    def _start_once(self) -> None:
        with self._log.open("ab") as log:
            self._process = self._spawn(log)
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            if self._process.poll() is not None:
                code = self._process.returncode
                self.kill()
                raise BrokerError(
                    f"{self.kind} on {self.address} ended with status {code}:\n{self.log()}"
                )
            # mosquitto opens its listeners one after the other.
            if all(Broker(self.host, port).running for port in self._listens_at()):
                # Whoever answered must be this child and not a stranger on the same port.
                if self._process.poll() is None:
                    return
            elif time.monotonic() > deadline:
                self.kill()
                raise BrokerError(
                    f"{self.kind} did not listen on {self.address} within {START_TIMEOUT:g} s:\n"
                    f"{self.log()}"
                )
            time.sleep(_RETRY)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def status(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def freeze(self) -> None:
        if self._process is None:
            raise BrokerError(f"{self.kind} on {self.address} does not run: cannot freeze it")
        self._process.send_signal(signal.SIGSTOP)
        # Its threads go on for a moment on a busy machine.
        _pid, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._process.returncode = os.waitstatus_to_exitcode(status)
            raise BrokerError(f"{self.kind} on {self.address} has ended: cannot freeze it")

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        self._released()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def restart(self) -> None:
        self.kill()
        self._start_once()

    def stop(self) -> None:
        self.kill()
        while self._held:
            self._held.pop().release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        try:
            return self._log.read_text(errors="replace")
        except OSError:
            return ""


class _Mosquitto(_Child):
    kind = "mosquitto"

    def __init__(
        self,
        port: int,
        persistence: bool,
        users: Mapping[str, str] | None,
        extra: str,
        where: Path | None,
        output: int | None,
        acl: str,
    ) -> None:
        program = find_mosquitto()
        if program is None:
            raise BrokerError(
                "mosquitto is missing: `apt-get install mosquitto` (Debian, Ubuntu) or "
                "`brew install mosquitto` (macOS), or name the program in MOSQUITTO"
            )
        super().__init__(port, where)
        self._program = program
        self._persistence = persistence
        self._users = users
        self._extra = extra
        self._output = output
        self._acl = acl
        self._guard: subprocess.Popen[bytes] | None = None

    def _listens_at(self) -> list[int]:
        more = re.findall(r"^listener (\d+)", self._extra, re.MULTILINE)
        return [self.port, *map(int, more)]

    def _configure(self) -> None:
        lines = [
            f"listener {self.port} {LOOPBACK}",
            # Started by root it would become the user mosquitto, who cannot read this folder.
            "user root",
            "log_type all",
            f"allow_anonymous {'false' if self._users else 'true'}",
        ]
        if self._users:
            lines.append(f"password_file {self._write_users()}")
        if self._persistence:
            lines += [
                "persistence true",
                f"persistence_location {self.folder}{os.sep}",
                # Saved at the end of each turn of its loop that changed something, and that is
                # after the answer: a client knows that a change outlives SIGKILL when it has had
                # the answer to a later packet.
                "autosave_on_changes true",
                "autosave_interval 1",
            ]
        if self._acl:
            rules = self.folder / "acl"
            rules.write_text(self._acl)
            lines.append(f"acl_file {rules}")
        config = "\n".join([*lines, self._extra, ""])
        (self.folder / "mosquitto.conf").write_text(config)

    def _write_users(self) -> Path:
        passwords = self.folder / "passwords"
        passwords.unlink(missing_ok=True)
        passwords.touch(mode=0o600)
        tool = shutil.which("mosquitto_passwd") or str(
            Path(self._program).with_name("mosquitto_passwd")
        )
        for user, password in (self._users or {}).items():
            done = subprocess.run(
                [tool, "-b", str(passwords), user, password],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise BrokerError(f"mosquitto_passwd failed: {done.stderr.strip()}")
        return passwords

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [self._program, "-c", str(self.folder / "mosquitto.conf")],
            stdin=subprocess.DEVNULL,
            stdout=log if self._output is None else self._output,
            stderr=subprocess.STDOUT,
        )
        if os.name == "posix":
            # Ends the broker when this process dies without having had the chance to.
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r _; kill -9 "$1"', "guard", str(process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return process

    def _released(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.wait()
            if guard.stdin is not None:
                guard.stdin.close()


class _Embedded(_Child):
    kind = "embedded"

    def __init__(self, port: int, users: Mapping[str, str] | None, version: int) -> None:
        if importlib.util.find_spec("iotcore") is None:
            raise BrokerError(
                "the embedded broker is missing: `pip install iotcore`, or start a broker "
                "yourself and name it in BROKER=host:port"
            )
        super().__init__(port)
        self._users = users
        self._listener = f"v{version}.1"

    def _configure(self) -> None:
        # Left to itself it would listen on every interface.
        lines = [
            "id = 0",
            "[router]",
            "id = 0",
            "max_connections = 20000",
            "max_outgoing_packet_count = 200",
            "max_segment_size = 10485760",
            "max_segment_count = 10",
            f"[{self._listener}]",
            'name = "loopback"',
            f'listen = "{LOOPBACK}:{self.port}"',
            "next_connection_delay_ms = 1",
            f"[{self._listener}.connections]",
            "connection_timeout_ms = 60000",
            "max_payload_size = 1048576",
            # The default of mosquitto.
            "max_inflight_count = 20",
            "dynamic_filters = true",
        ]
        if self._users:
            lines.append(f"[{self._listener}.connections.auth]")
            lines += [f"{_toml(user)} = {_toml(word)}" for user, word in self._users.items()]
        (self.folder / "rumqttd.toml").write_text("\n".join([*lines, ""]))

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        # The child imports this very package, also from a checkout that is not installed.
        return subprocess.Popen(
            [sys.executable, "-m", "flatmq_tools.embedded_broker", "rumqttd.toml"],
            cwd=self.folder,
            env=interpreter.environment(Path(__file__).parents[1]),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _toml(text: str) -> str:
    """A TOML basic string, which is written as JSON writes it."""
    return json.dumps(text)


def mosquitto(
    *,
    port: int = 0,
    persistence: bool = False,
    users: Mapping[str, str] | None = None,
    extra: str = "",
    where: Path | None = None,
    output: int | None = None,
    acl: str = "",
) -> Broker:
    """Start mosquitto on loopback and return once it accepts connections.

    port: 0 takes a free one. persistence: sessions and retained messages outlive `kill()`.
    users: name → password; then nobody else gets in. extra: lines for its configuration file,
    for instance "max_inflight_messages 1". where: the folder in which it makes its own. output: a
    file descriptor that its log goes to; `log()` is empty then. acl: lines of its acl_file, such
    as "topic readwrite #". Raises BrokerError when it is
    missing or ends.
    """
    broker = _Mosquitto(port, persistence, users, extra, where, output, acl)
    broker.start()
    return broker


def embedded(*, port: int = 0, users: Mapping[str, str] | None = None, version: int = 4) -> Broker:
    """Start the broker that pip installs (rumqttd, packed by iotcore) in a child process.

    port: 0 takes a free one. users: name → password. version: 4 has a listener for MQTT 3.1.1
    alone, 5 one for MQTT 5 alone. Listens on loopback alone and forgets everything when it ends.
    Raises BrokerError when it is missing or ends.
    """
    broker = _Embedded(port, users, version)
    broker.start()
    return broker


def external(address: str, tls: bool = False) -> Broker:
    """Return the broker that already runs at `host` or `host:port`.

    The default port is 1883, and 8883 with `tls`. Raises ToolError if none answers.

    An IPv6 address stands in brackets: `[::1]:1883`.
    """
    broker = Broker(*parsed(address, tls))
    if not broker.running:
        try:
            socket.getaddrinfo(broker.host, broker.port)
        except (OSError, UnicodeError):
            raise BrokerError(f"{broker.host}: no such host") from None
        raise BrokerError(f"no broker answers at {broker.address}")
    return broker
