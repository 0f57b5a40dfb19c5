"""Files of an Iceberg table on a disk of this machine, synced before a commit names them.

The catalog's database syncs its commit. After a power cut it would else name files that the disk
never got, and no reader could open the table.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class SyncedFiles(PyArrowFileIO):
    """The local file system of pyiceberg, which also syncs each file when it is closed."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to be written."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        """Return a stream that writes it."""
        path = Path(self.location.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        return _Stream(path, "w" if overwrite else "x")


class _Stream(io.BufferedWriter):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(io.FileIO(path, mode))
        self._folder = path.parent

    def close(self) -> None:
        """Sync the file and its place in the folder, and close it."""
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
