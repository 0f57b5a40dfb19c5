"""The littlefs image: as the board's own MicroPython would have formatted and written it."""

from __future__ import annotations

from littlefs import LittleFS, LittleFSError, UserContext

from ..boards import Flash
from ..errors import ToolError


class _Noting(UserContext):
    """A context that notes which blocks are read."""

    def __init__(self, image: bytes) -> None:
        super().__init__(len(image))
        self.buffer[:] = image
        self.blocks: set[int] = set()

    def read(self, cfg, block: int, off: int, size: int) -> bytearray:
        self.blocks.add(block)
        return super().read(cfg, block, off, size)


def _filesystem(flash: Flash, context: UserContext) -> LittleFS:
    """Return a filesystem with the parameters that MicroPython mounts with.

    They are those of extmod/vfs_lfsx.c, init_config, so the board goes on as with a filesystem
    of its own: a file that fits into the cache lies in its directory, for example.
    """
    return LittleFS(
        context=context,
        mount=False,
        block_size=flash.block,
        block_count=flash.filesystem_size // flash.block,
        read_size=32,
        prog_size=flash.program,
        cache_size=4 * max(32, flash.program),
        lookahead_size=32,
        block_cycles=100,
    )


def build(files: dict[str, bytes], flash: Flash) -> bytes:
    """Return the whole filesystem, `flash.filesystem_size` bytes.

    The same files give the same bytes.

    files: absolute path -> bytes. Raises ToolError if they need more room than there is.
    """
    context = UserContext(flash.filesystem_size)
    filesystem = _filesystem(flash, context)
    filesystem.format()
    filesystem.mount()
    path = ""
    try:
        for path, data in sorted(files.items()):
            filesystem.makedirs(path.rpartition("/")[0] or "/", exist_ok=True)
            with filesystem.open(path, "wb") as file:
                file.write(data)
    except LittleFSError as error:
        if error.code != LittleFSError.Error.LFS_ERR_NOSPC:
            raise
        raise ToolError(
            f"{len(files)} files of {sum(map(len, files.values())):,} bytes do not fit into the "
            f"filesystem of {flash.filesystem_size:,} bytes: it was full at {path}"
        ) from error
    filesystem.unmount()
    return bytes(context.buffer)


def live(image: bytes, flash: Flash) -> list[int]:
    """The blocks that matter, in order: those that littlefs reads for all that is in the image.

    Whatever an earlier filesystem left in the others does no harm: littlefs erases a block before
    it writes it. Among these are blocks of which nothing is in use yet: each directory has two,
    and an old one with a higher revision must not be taken for the newer.
    """
    context = _Noting(image)
    filesystem = _filesystem(flash, context)
    filesystem.mount()
    for folder, _, names in filesystem.walk("/"):
        for name in names:
            with filesystem.open(f"{folder.rstrip('/')}/{name}", "rb") as file:
                file.read()
    filesystem.unmount()
    return sorted(context.blocks)
