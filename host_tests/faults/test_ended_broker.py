"""A broker that ends by itself is named in the row that it served."""

from __future__ import annotations

import os
import signal

import pytest

from faults import bench as fault_bench
from faults.bench import Bench, cases
from flatmq_rigs.links import Listening


class _Ended(Listening):
    """A mosquitto that has died."""

    def __init__(self, link: str, *, extra: str) -> None:
        super().__init__(link, extra=extra)
        pid = self.broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_row_says_that_its_broker_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_bench, "Listening", _Ended)
    case = next(case for case in cases() if case.broker == "mosquitto over WebSocket")
    with Bench() as bench:
        row = bench.run(case)
    assert row.problems[0] == "mosquitto ended with status -9"
    assert "mosquitto version" in row.told
