"""The files in which the driver keeps what it knows, such as of devices and boots."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from . import counters, history, records

_VERSION = 8
_HINT = ": remove it while nothing runs; what it held is made again"
_BUSY = 120.0  # s to wait for the other connection
_SCHEMA = (
    """
CREATE TABLE place (query TEXT NOT NULL, batch INTEGER, now INTEGER);
CREATE TABLE devices (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    status TEXT, status_at INTEGER, status_offset INTEGER
);
CREATE TABLE parts (part INTEGER PRIMARY KEY, closed INTEGER, stale INTEGER NOT NULL);
"""
    + records.SCHEMA
    + counters.SCHEMA
    + history.SCHEMA
)


class StateError(RuntimeError):
    """The state cannot be used; the text names its file and says why."""


class Place(NamedTuple):
    """The place up to which the messages are included."""

    query: str
    batch: int | None
    """The last batch of the query that is included whole; None while raw is read again."""
    now: int | None
    """When the newest message arrived, in microseconds since 1970."""


Own = TypeVar("Own", bound="File")


class File:
    """A SQLite file. Each thread that uses it needs a File of its own.

    schema   statements that make its tables in a new file, with ; between them
    version  of the schema

    A file of an earlier version, or a damaged one, is removed: what it held can be made again.
    Raises StateError for a file of a later version: it may go back further than raw does.
    """

    def __init__(self, file: Path, schema: str, version: int) -> None:
        self.file = file
        self._lock = threading.Lock()
        file.parent.mkdir(parents=True, exist_ok=True)
        with self.named():
            try:
                self.db = self._opened(schema, version)
            except sqlite3.OperationalError:  # no permission, no space
                raise
            except sqlite3.DatabaseError:
                for end in ("", "-wal", "-shm"):
                    Path(f"{file}{end}").unlink(missing_ok=True)
                self.db = self._opened(schema, version)

    def _opened(self, schema: str, version: int) -> sqlite3.Connection:
        """Open the file, and make its tables in a new one."""
        # The batches of a query come in a thread of Py4J, not always the same one.
        db = sqlite3.connect(
            self.file, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            (found,) = db.execute("PRAGMA user_version").fetchone()
            if found > version:
                raise StateError(f"{self.file} is of a later edition of flatmq: use that edition")
            if found not in (0, version):
                raise sqlite3.DatabaseError(f"version {found}")
            if not found:
                db.execute("BEGIN IMMEDIATE")
                # Another thread may have made them since.
                if not db.execute("PRAGMA user_version").fetchone()[0]:
                    for statement in schema.split(";"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {version}")
                db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        return db

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Turn errors of SQLite into StateError, and that of a full disk into OSError."""
        try:
            yield
        except sqlite3.Error as error:
            if str(error) == "database or disk is full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.file)) from error
            hint = "" if isinstance(error, sqlite3.OperationalError) else _HINT
            raise StateError(f"{self.file}: {error}{hint}") from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Change the file in one step: all of it is on the disk at the end, or nothing is."""
        with self._lock, self.named():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:  # a full disk has ended it
                    self.db.execute("ROLLBACK")
                raise

    def clear(self) -> None:
        """Forget everything."""
        with self.writing() as db:
            tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
            for (name,) in tables:
                db.execute(f"DELETE FROM {name}")

    @contextlib.contextmanager
    def forgetting(self) -> Iterator[sqlite3.Connection]:
        """Change the file as `writing` does, so that nothing is left of what was removed."""
        self.db.execute("PRAGMA secure_delete = ON")
        with self.writing() as db:
            yield db
        with self.named():
            self.db.execute("VACUUM")
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.db.close()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store(File):
    """The state of a run."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, _SCHEMA, _VERSION)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """See the file as it is now, whatever another thread writes meanwhile."""
        with self._lock, self.named():
            self.db.execute("BEGIN")
            try:
                yield self.db
            finally:
                self.db.execute("ROLLBACK")

    def place(self) -> Place | None:
        """Return how far the messages are included; None if nothing was."""
        row = self.db.execute("SELECT query, batch, now FROM place").fetchone()
        return None if row is None else Place(*row)

    @classmethod
    def of_run(cls, file: Path) -> Store | None:
        """Return the state that a run has made, to read it; None if there is none of this version.

        The file is not changed. StateError if it is damaged.
        """
        if not file.exists():
            return None
        store = cls.__new__(cls)
        store.file = file
        store._lock = threading.Lock()  # noqa: SLF001 - of this class
        with store.named():
            # A connection that may only read fails if the last writer was killed.
            store.db = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY,
                isolation_level=None,
            )  # fmt: skip
            try:
                (version,) = store.db.execute("PRAGMA user_version").fetchone()
            except BaseException:
                store.close()
                raise
        if version != _VERSION or store.place() is None:
            store.close()
            return None
        return store


def placed(db: sqlite3.Connection, place: Place) -> None:
    """Note how far the messages are included, in the transaction that includes them."""
    db.execute("DELETE FROM place")
    db.execute("INSERT INTO place (query, batch, now) VALUES (?, ?, ?)", place)
