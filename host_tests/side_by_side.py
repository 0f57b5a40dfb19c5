"""Run the cases of a test side by side, as most of them wait most of the time."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

MOST = 8  # at a time


@contextmanager
def side_by_side(
    request: pytest.FixtureRequest,
    test: Callable[..., None],
    run: Callable[[Any], Any],
    most: int = MOST,
) -> Iterator[dict[Any, Future[Any]]]:
    """Yield what `run` makes of each `case` of a test that this run of pytest asks for."""
    wanted = [
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test
    ]
    with ThreadPoolExecutor(most) as pool:
        futures = {case: pool.submit(run, case) for case in wanted}
        yield futures
        for future in futures.values():
            future.cancel()
