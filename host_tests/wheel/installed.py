"""The wheel, installed into an environment of its own."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typed_command
from conftest import ran
from typed_command import PATIENCE

_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "BROKER", "SPARK_MASTER", "MICROPYTHON")


class Installed:
    """An environment with flatmq's wheel; commands run in `folder`.

    extras: those of the wheel, "" for none. shares: what they need is taken from the environment
    that runs this, instead of installed.
    """

    def __init__(self, folder: Path, wheel: Path, extras: str, *, shares: bool = False) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        self._programs = folder / "venv" / "bin"
        self._environment = {k: v for k, v in os.environ.items() if k not in _OURS}
        self._environment |= {"COLUMNS": "200", "PYTHONNOUSERSITE": "1"}
        venv = str(folder / "venv")
        made = [sys.executable, "-m", "venv", "--without-pip", venv]
        subprocess.run(made, check=True, timeout=PATIENCE, env=self._environment)
        pip = [sys.executable, "-m", "pip", "--python", venv, "install", "--quiet", "--no-compile"]
        command = [*pip, "--no-deps", str(wheel)] if shares else [*pip, f"{wheel}{extras}"]
        subprocess.run(command, check=True, timeout=PATIENCE, env=self._environment)
        if shares:
            (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
            (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))

    def python(self, code: str) -> str:
        return self.run("python", "-I", "-c", code).stdout

    def run(
        self, program: str, *arguments: object, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, which must end with that status."""
        done = ran(
            self._command(program, arguments),
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def flatmq(self, *arguments: object) -> str:
        """Return what the command `flatmq` prints, which must succeed."""
        return self.run("flatmq", *arguments).stdout

    def refused(self, *arguments: object) -> str:
        """Return the one line of the error that the command `flatmq` ends with."""
        (line,) = self.run("flatmq", *arguments, status=1).stderr.splitlines()
        return line

    @contextmanager
    def running(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """A `flatmq` command that runs during the block, and is killed if it runs at its end."""
        command = self._command("flatmq", arguments)
        with typed_command.running(command, self.folder, self._environment) as process:
            yield process

    def _command(self, program: str, arguments: tuple[object, ...]) -> list[str]:
        return [str(self._programs / program), *map(str, arguments)]
