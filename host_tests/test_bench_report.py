"""The benchmark's report and verdict on measurements."""

import pytest

from flatmq_rigs.bench.clients import CLIENTS, MICROPYTHON
from flatmq_rigs.bench.figures import Results
from flatmq_rigs.bench.peers import index_options
from flatmq_rigs.bench.report import Report
from flatmq_rigs.bench.targets import FLATMQ, TARGETS


def test_ratio_is_the_median_of_the_ratios_within_a_round():
    results = Results()
    results.rounds[FLATMQ.key, "publish"] = [2.0, 9.0, 4.0]
    results.rounds[FLATMQ.floor_key, "publish"] = [1.0, 3.0, 4.0]
    assert results.ratio(FLATMQ, "publish") == 2.0
    assert results.median(FLATMQ, "publish") == 4.0


def test_mqtt_5_is_held_against_the_same_round_of_3_1_1():
    new = next(c for c in CLIENTS if c.module == "flatmq5" and c.runtime == MICROPYTHON)
    results = Results()
    results.rounds[FLATMQ.key, "receive"] = [1.0, 2.0, 4.0]
    results.rounds[new.key, "receive"] = [1.1, 2.6, 4.4]
    results.rounds[new.key, "receive_tagged"] = [2.0, 2.0, 8.0]
    assert results.beside(new, FLATMQ, "receive") == pytest.approx(1.1)
    assert results.beside(new, FLATMQ, "receive_tagged") == 2
    assert results.beside(new, FLATMQ, "publish") is None
    written = Report([FLATMQ, new], results).versions()
    assert "| receive QoS 0, MicroPython | 2 | 2.6 | 1.1 | met |" in written
    assert "| … with a subscription identifier, MicroPython | 2 | 2 | 2 | MISSED |" in written
    assert "| publish QoS 0, each sent off with `flush`, MicroPython | - | - | - | - |" in written


def test_a_target_without_a_measurement_is_missed():
    assert not any(target.met(target.value(Results())) for target in TARGETS)


def test_a_client_that_failed_is_named_with_the_reason():
    results = Results()
    results.failures[FLATMQ.key, "held"] = "MemoryError: no room"
    report = Report([FLATMQ], results)
    assert "| flatmq | failed | failed |" in report.memory()
    assert "MemoryError: no room" in report.markdown([], with_targets=True)


def test_the_index_that_pip_uses_is_used_for_archives_too():
    config = (
        "global.index-url='https://index.example/simple'\n:env:.trusted-host='index.example'\n"
    )
    assert index_options(config) == [
        "--index-url", "https://index.example/simple", "--trusted-host", "index.example",
    ]  # fmt: skip
    assert index_options("global.cert='/etc/cert.pem'\n") == []
