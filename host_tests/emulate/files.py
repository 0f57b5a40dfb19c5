"""The files of an image, for the stand-ins of the emulators."""

from __future__ import annotations

from pathlib import Path

from littlefs import LittleFS, UserContext

from flatmq_tools.boards import Board


def unpack(board: Board, content: bytes, folder: Path) -> None:
    """Write the files of a board's filesystem, whose bytes are `content`, into `folder`."""
    flash = board.flash
    context = UserContext(flash.filesystem_size)
    context.buffer[: len(content)] = content
    filesystem = LittleFS(
        context=context, block_size=flash.block, block_count=flash.filesystem_size // flash.block
    )
    for where, _, names in filesystem.walk("/"):
        for name in names:
            path = f"{where.rstrip('/')}/{name}"
            target = folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with filesystem.open(path, "rb") as file:
                target.write_bytes(file.read())
