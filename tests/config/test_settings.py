"""What a start records of its settings, and what is told of a change."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from spark_ckpt.config import JobConfig
from spark_ckpt.jobs._settings import tell_changes
from spark_ckpt.protocol.records import GenerationRecord, Topology

TOPOLOGY = Topology(1, 1, ("a",), {}, ("s",))


def started(number: int, **options: str) -> GenerationRecord:
    config = JobConfig.from_options({"dir": "/jobs", "storage.secret": "hunter2", **options})
    return GenerationRecord(number, 1, "spark", None, 0, TOPOLOGY, settings=config.checkpoint_settings())


def test_settings_are_recorded_with_their_defaults_and_hold_no_secret() -> None:
    settings = started(1, interval="30s", mode="at_least_once").settings
    assert (
        settings["interval"]
        == JobConfig.from_options({"dir": "/", "interval": "30s"}).to_options()["spark.ckpt.interval"]
    )
    assert settings["mode"] == "at_least_once"
    assert settings["initialDelay"] == "random between 0 and `interval`"
    assert "hunter2" not in str(settings)


def test_where_each_setting_was_set_is_recorded() -> None:
    config = JobConfig.from_options({"spark.ckpt.dir": "/j", "spark.ckpt.retain": "4"}, {"interval": "30s"})
    told = replace(config, lanes=3).settings_from()
    assert (told["retain"], told["interval"], told["mode"]) == ("session", "query", "default")
    assert told.keys() == config.checkpoint_settings().keys()


def test_a_change_is_told_once_with_both_values(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "spark_ckpt"):
        changed = tell_changes("orders", started(3, maxConcurrent="1"), started(4, maxConcurrent="2", retain="1"))
    assert changed == ["spark.ckpt.maxConcurrent is 2, was 1"]
    assert "Job orders, generation 4: settings changed since generation 3" in caplog.text


def test_nothing_is_told_at_a_first_start_or_after_a_release_that_recorded_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old = GenerationRecord(1, 1, "spark", None, 0, TOPOLOGY)
    assert tell_changes("orders", None, started(1)) == []
    assert tell_changes("orders", old, started(2)) == []
    assert tell_changes("orders", started(1), started(2)) == []
    assert caplog.text == ""
