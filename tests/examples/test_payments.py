"""The payments job: Kafka, PostgreSQL and Delta hold what a batch computation gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import spark_ckpt
from examples.payments.demo import compare, produce, servers, start_job
from examples.payments.generator import payments
from tests.kill.processes import DEADLINE_S


@pytest.mark.soak  # a broker, a server and a start of Spark of its own
def test_payments_that_are_late_or_come_twice_are_summed_once_in_all_three_systems(tmp_path: Path) -> None:
    sent = list(payments(3000))
    assert len(sent) == 3150, "every twentieth comes twice"
    assert [p.payment for p in payments(3000)] == [p.payment for p in sent]
    with servers(tmp_path / "payments") as given:
        assert produce(given.places["brokers"], sent) == len(sent)
        job = start_job(given, tmp_path / "log", now=True, interval="1h", maxOffsetsPerTrigger=1000)
        assert job.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()[-3000:]
        compare(given, sent)
    assert spark_ckpt.job(f"{tmp_path}/payments/checkpoints", "payments").verify() == []
