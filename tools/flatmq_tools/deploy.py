"""Put a sketch, the client and the settings on a board that runs MicroPython."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from . import board_tls, boards, connected, contents, settings
from .plain import PlainConsole
from .remote import Remote

SETTINGS = "/settings.json"


def main(
    name: str,
    port: str | None,
    sketch: str | None,
    overrides: Iterable[str],
    console: Console | None = None,
) -> int:
    """Copy what has changed, and reset the board; return 0.

    name: of the board. port: its address, None for the only one that is connected. sketch: a
    folder, or one of boards/; None for the board's own. overrides: settings, as KEY=VALUE;
    without any, and without boards/settings.json, those on the board are kept. Raises ToolError
    and RemoteError.
    """
    console = console or PlainConsole()
    board = boards.load(name)
    folder = contents.find_sketch(sketch or board.sketch)
    overrides = list(overrides)
    ready, keys, remarks = board_tls.prepare_for(board, settings.load(overrides))
    files = contents.contents(folder, ready) | keys
    address = connected.choose(port, name)
    console.print(f"{folder.name} goes to the {board.title} at {address}")
    for remark in remarks:
        console.print(remark, soft_wrap=True)
    with Remote(address) as remote:
        remote.enter(soft_reset=True)
        remote.check()
        if not (overrides or settings.is_own()) and remote.has(SETTINGS):
            console.print("the settings on the board stay as they are")
            files.pop(SETTINGS, None)
        elif SETTINGS in files:
            # A private key that no setting names does not stay on the board.
            remote.remove(path for path in board_tls.PATHS.values() if path not in files)
            for line in settings.remarks(ready, board.network):
                console.print(line, soft_wrap=True)
        put(remote, files, console)
        remote.reset()
    console.print(
        f"the board restarts; `flatmq logs --port {address}` shows its output",
        soft_wrap=True,
    )
    return 0


def put(remote: Remote, files: dict[str, bytes], console: Console) -> None:
    """Write the files that the board lacks, with a progress bar.

    Remove what would be imported instead of them. Raises RemoteError.
    """
    remote.remove(shadows(files))
    changed = remote.different(files)
    size = sum(len(data) for data in changed.values())
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=size)

        def moved(path: str, n: int) -> None:
            bar.update(task, advance=n, description=path)

        # What starts the sketch comes last: a copy that is cut short leaves the old one.
        remote.write(dict(sorted(changed.items(), key=lambda each: each[0] == "/main.py")), moved)
    same = len(files) - len(changed)
    console.print(
        f"{len(changed)} files written, {size:,} bytes; {same} unchanged",
    )


def shadows(files: Iterable[str]) -> list[str]:
    """Return the paths that would shadow `files`: x.py for x.mpy, and the reverse.

    MicroPython would import them instead, or a source of the same name would leave them
    behind.
    """
    found = []
    for path in files:
        stem, _, suffix = path.rpartition(".")
        if suffix == "mpy":
            found.append(f"{stem}.py")
        elif suffix == "py":
            found.append(f"{stem}.mpy")
    return found
