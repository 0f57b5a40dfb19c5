"""A function that finds no memory."""

from typing import Any

import pytest


class Short:
    """Stands for a function that finds no memory in its calls number `n`, by default the first.

    With an `error`, each call raises that.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        of: Any,
        name: str,
        *n: int,
        error: BaseException | None = None,
    ) -> None:
        self._right = getattr(of, name)
        self._short = n or (1,)
        self._error = error
        self.calls = 0
        patch.setattr(of, name, self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        if self._error:
            raise self._error
        if self.calls in self._short:
            raise MemoryError
        return self._right(*given, **named)
