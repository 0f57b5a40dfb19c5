"""Turn the versions of a table into rows of others, in batches that each happen once.

A batch is committed to each output with its end, and to the state last. If a run dies in
between, the batch is done again with the same end and from the same state: outputs that have it
are skipped. So all of it depends on nothing but the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from .table import File, Table, parsed, read
from .versions import Versions


@dataclass
class Made:
    """The rows that a batch makes."""

    rows: Mapping[str, DataFrame | None]
    """Rows for each output, by its name; None if there are none."""
    state: DataFrame | None
    """Rows for the state."""
    replaced: Sequence[File] = field(default_factory=list)
    """Files of the state that these rows replace."""


Work = Callable[[DataFrame, int], AbstractContextManager[Made]]
"""Makes the rows of a batch, from the rows that it reads and its end."""


class Job:
    """A job.

    name     of its transactions in the tables
    source   what it follows
    schema   the columns that it reads
    outputs  by name
    state    a table that every batch is committed to
    """

    def __init__(
        self, name: str, source: Versions, schema: str, outputs: Mapping[str, Table],
        state: Table, work: Work,
    ) -> None:  # fmt: skip
        self.name = name
        self._source = source
        self._schema = parsed(schema)
        self._outputs = outputs
        self._state = state
        self._work = work

    def step(self) -> bool:
        """Do a batch; return whether there was one."""
        begin = self._state.position(self.name)
        done = {name: table.position(self.name) for name, table in self._outputs.items()}
        ahead = {at for at in done.values() if at is not None and (begin is None or at > begin)}
        batch = self._source.batch(begin, max(ahead, default=None))
        if batch is None:
            return False
        end, files = batch
        if not files:  # versions that only rewrite rows
            self._state.commit(None, self.name, end, always=True)
            return True
        rows = read(self._state.spark, self._source.folder, files, self._schema)
        with self._work(rows, end) as made:
            for name, table in self._outputs.items():
                if done[name] != end:
                    table.commit(made.rows[name], self.name, end)
            self._state.commit(made.state, self.name, end, made.replaced, always=True)
        return True

    def steps(self) -> Iterator[None]:
        """Do batches until everything that is there is done; yield after each."""
        while self.step():
            yield
