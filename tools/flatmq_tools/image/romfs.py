"""The ROMFS image: modules that run where they lie in flash."""

from __future__ import annotations

from collections.abc import Mapping

from mpremote.romfs import VfsRomWriter


def build(files: Mapping[str, bytes]) -> bytes:
    """files: absolute path -> bytes; on the board they are below /rom."""
    writer = VfsRomWriter()
    inside: list[str] = []
    for path in sorted(files, key=lambda path: path.split("/")):
        *folders, name = path.strip("/").split("/")
        while inside != folders[: len(inside)]:
            inside.pop()
            writer.closedir()
        for folder in folders[len(inside) :]:
            inside.append(folder)
            writer.opendir(folder)
        writer.mkfile(name, files[path])
    for _ in inside:
        writer.closedir()
    return bytes(writer.finalise())
