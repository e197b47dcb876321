"""One reading of durations, sizes, flags and numbers, and one rule for whose ``storage.*`` it is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_ckpt.api.read import lane_count
from spark_ckpt.api.write import CkptDataStreamWriter
from spark_ckpt.config import JobConfig, is_job_option
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.lineage import Lineage
from spark_ckpt.plain._options import job_of, source_of
from spark_ckpt.redaction import secret_values
from spark_ckpt.sinks._options import SinkOptions
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.sources import _options as source_options
from spark_ckpt.sources.files import FilesSource


def source_value(option: source_options.Option) -> Callable[[str], Any]:
    return lambda text: source_options.parse_options("x", {"o": option}, {"o": text})["o"]


def config_value(key: str, field: str) -> Callable[[str], Any]:
    return lambda text: getattr(JobConfig.from_options({"dir": "/jobs", key: text}), field)


def sink_options(text: str) -> SinkOptions:
    return SinkOptions("x", {"o": text}, ("o",))


DURATIONS_MS: dict[str, Callable[[str], Any]] = {
    "config": config_value("interval", "interval_ms"),
    "sink": lambda text: sink_options(text).duration_ms("o", "1s"),
    "source": lambda text: source_value(source_options.duration_s(1.0))(text) * 1000,
}
SIZES = {"config": config_value("cache.maxBytes", "cache_max_bytes"), "source": source_value(source_options.size())}
FLAGS: dict[str, Callable[[str], Any]] = {
    "config": config_value("history", "history"),
    "sink": lambda text: sink_options(text).flag("o", False),
    "source": source_value(source_options.flag()),
}
COUNTS: dict[str, Callable[[str], Any]] = {
    "config": config_value("retain", "retain"),
    "source": source_value(source_options.positive()),
    "reader": lane_count,
}


@pytest.mark.parametrize("where", DURATIONS_MS)
@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("500ms", 500), ("2s", 2000), ("0.5s", 500), ("1.5 hours", 5_400_000), ("2 minutes", 120_000), (" 1MIN ", 60_000)],
)
def test_a_duration_is_the_same_everywhere(where: str, text: str, expected_ms: int) -> None:
    assert DURATIONS_MS[where](text) == expected_ms


def test_a_plain_number_is_milliseconds_and_is_refused_where_it_was_seconds() -> None:
    assert DURATIONS_MS["config"]("1500") == DURATIONS_MS["sink"]("1500") == 1500
    with pytest.raises(ConfigError, match="expected a duration with its unit, such as 500ms, 1s or 2m, found '5'"):
        DURATIONS_MS["source"]("5")
    assert DURATIONS_MS["source"]("0") == 0


@pytest.mark.parametrize("where", SIZES)
@pytest.mark.parametrize(
    ("text", "expected"), [("1048576", 1 << 20), ("1.5g", 3 << 29), ("64 MiB", 64 << 20), ("2t", 2 << 40)]
)
def test_a_size_is_the_same_everywhere(where: str, text: str, expected: int) -> None:
    assert SIZES[where](text) == expected


@pytest.mark.parametrize("where", FLAGS)
def test_a_flag_is_the_same_everywhere(where: str) -> None:
    assert [FLAGS[where](text) for text in ("true", "TRUE", " false ")] == [True, True, False]
    for text in ("yes", "1", "on", "wahr"):
        with pytest.raises(ConfigError, match=f"true or false.*{text}"):
            FLAGS[where](text)


@pytest.mark.parametrize("where", COUNTS)
def test_a_number_is_the_same_everywhere(where: str) -> None:
    assert [COUNTS[where](text) for text in ("1", "0017", " 5 ")] == [1, 17, 5]
    for text in ("0", "-1", "1_000", "1e3", "\u0663", "\u00b2", "two", "1.0"):
        with pytest.raises(ConfigError, match="expected a"):
            COUNTS[where](text)


# --- storage.* -------------------------------------------------------------------------------------------------

STORAGE = {
    "storage.key": "k",
    "storage.anon": "True",
    "storage.client_kwargs.endpoint_url": "http://x",
    "storage.a": "[1]",
}
NESTED = {"key": "k", "anon": True, "client_kwargs": {"endpoint_url": "http://x"}, "a": [1]}


def test_options_of_a_file_system_are_read_alike_everywhere() -> None:
    job = JobConfig.from_options({"dir": "/jobs", **{f"spark.ckpt.{k}": v for k, v in STORAGE.items()}})
    assert job.storage_options() == NESTED
    assert FilesSource({"path": "/in", "fileFormat": "json", **STORAGE})._own_storage == NESTED
    assert FilesSink({"path": "/out", **STORAGE})._storage == NESTED


def test_malformed_json_is_refused_without_its_value() -> None:
    for make, path in ((FilesSource, "/in"), (FilesSink, "/out")):
        with pytest.raises(ConfigError, match=r"storage\.secret looks like JSON") as refused:
            make({"path": path, "fileFormat": "json", "storage.secret": "{hunter2"})
        assert "hunter2" not in str(refused.value)


def test_secrets_are_found_in_nested_options() -> None:
    assert secret_values({"key": "a", "client_kwargs": {"x": "b", "session": {"aws_secret": "c"}}}) == ["a", "c"]


@pytest.mark.parametrize(
    ("option", "job"),
    [
        ("storage.key", False),
        ("Storage.Key", False),
        ("spark.ckpt.storage.key", True),
        ("mode", False),
        ("spark.ckpt.mode", True),
        ("interval", True),
        ("spark.ckpt.intervall", True),
        ("path", False),
    ],
)
def test_whose_option_it_is(option: str, job: bool) -> None:
    assert is_job_option(option) is job


def test_storage_of_the_first_sink_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class AskedError(Exception):
        """The request a start would be made of."""

    def ask(request: Any) -> None:
        raise AskedError(request)

    monkeypatch.setattr("spark_ckpt.api.write.start_query", ask)
    session = SimpleNamespace(spark=None, config=lambda own: JobConfig.from_options({"spark.ckpt.dir": "/jobs"}, own))
    monkeypatch.setattr("spark_ckpt.api.write.translated", lambda *_: SimpleNamespace(_lineage=Lineage()))
    writer = CkptDataStreamWriter(SimpleNamespace(columns=["k"]), session).format("files").option("storage.key", "sink")
    writer.option("spark.ckpt.storage.key", "job").alsoTo("delta", **{"storage.key": "second"})
    with pytest.raises(AskedError) as found:
        writer.start("/out")
    request = found.value.args[0]
    assert request.job_options == {"spark.ckpt.storage.key": "job"}
    assert request.sinks == [("files", {"storage.key": "sink", "path": "/out"}), ("delta", {"storage.key": "second"})]


def test_storage_of_the_plain_plugin_is_the_sources_or_sinks() -> None:
    given = {"dir": "/jobs", "job": "a", "source": "files", "storage.key": "in", "spark.ckpt.storage.key": "job"}
    assert job_of(given)[0].storage == {"key": "job"}
    assert source_of(given, None).options == {"storage.key": "in"}


def test_a_sink_or_source_without_a_file_system_says_whose_the_option_would_be() -> None:
    with pytest.raises(ConfigError, match=r"that of the job is spark\.ckpt\.storage"):
        SinkOptions("sql", {"storage.key": "hunter2"}, ("url",))
    with pytest.raises(ConfigError, match=r"that of the job is spark\.ckpt\.storage"):
        source_options.parse_options("rate", {}, {"storage.key": "hunter2"})
