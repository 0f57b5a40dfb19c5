"""Keep records of a spool that the client set aside, in a store of their own.

Loaded with the first such record.
"""

import os

from .flash import FULL, sync_folder
from .port import const
from .store import Store

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = const("dropped")
_SEGMENTS = const(2)


def _open(folder, segment):
    return Store(folder + "/" + _NAME, segment, _SEGMENTS, 0, 0, 0)


def keep(folder: str, segment: int, record: Store) -> bool:
    """Copy the record that a store has read. If there is no room, the oldest ones are removed.
    Returns False if that does not help because the file system is full. OSError if it fails."""
    store = None
    try:
        store = _open(folder, segment)
        sync_folder(folder)
        while not store.append(record.first, record.topic, record.payload, store.seq):
            if store.drop(store.seq) < 0:
                return False
        return True
    except OSError as e:
        if e.errno in FULL:
            return False
        raise
    finally:
        if store:
            store.close()


def read(folder: str, segment: int) -> "Iterator[tuple[int, bytes, bytes]]":
    """Iterate over the records, oldest first.

    Each is the first byte of the PUBLISH, topic and payload.
    """
    if _NAME not in os.listdir(folder):
        return
    store = _open(folder, segment)
    try:
        while store.seq < store.next:
            try:
                found = store.read()
            except OSError:  # what is in this file may be read by the next call
                store.give_up()
                continue
            if found:
                yield store.first, bytes(store.topic), bytes(store.payload)
                store.advance()
    finally:
        store.close()
