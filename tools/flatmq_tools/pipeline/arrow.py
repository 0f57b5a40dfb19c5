"""Use pyarrow without pandas, which it imports for the first array: 37 MB, a fifth of a second."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def load() -> None:
    """Import pyarrow. It looks for pandas now, finds none, and again only to convert to it."""
    import pyarrow as pa

    if "pandas" not in sys.modules:
        finder = _NoPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(finder)
