from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.config import JobConfig, config_keys, config_table, is_config_key
from spark_ckpt.config_values import parse_duration_ms, parse_size_bytes
from spark_ckpt.errors import ConfigError
from spark_ckpt.redaction import redact_url

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def config(**options: str) -> JobConfig:
    return JobConfig.from_options({"dir": "/ckpt", **{k.replace("__", "."): v for k, v in options.items()}})


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("10s", 10_000),
        ("5 minutes", 300_000),
        ("1min", 60_000),
        ("1m", 60_000),
        ("100ms", 100),
        ("250", 250),
        ("2 Hours", 7_200_000),
        ("1d", 86_400_000),
        ("2000us", 2),
        (" 0s ", 0),
    ],
)
def test_durations_are_read_as_spark_writes_them(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [("1", 1), ("64k", 65536), ("64KB", 65536), ("1kib", 1024), ("64m", 64 * 2**20), ("4g", 4 * 2**30), ("10b", 10)],
)
def test_sizes_are_read_as_spark_writes_them(text: str, expected_bytes: int) -> None:
    assert parse_size_bytes(text) == expected_bytes


@pytest.mark.parametrize("text", ["", "s", "-1s", "1.0005s", "1 fortnight", "1s 2s", "1us", "\u0661s"])
def test_malformed_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.timeout: expected "):
        config(timeout=text)


@pytest.mark.parametrize("text", ["", "k", "-1", "1.3k", "64 kilo", "1e3", "0", "1ib"])
def test_malformed_sizes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.cache\.maxBytes: expected "):
        config(cache__maxBytes=text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "at_most_once"),
        ("maxConcurrent", "0"),
        ("maxParallelism", "32769"),
        ("retain", "0"),
        ("retention", "keep"),
        ("history", "yes"),
        ("hooks", "no-colon"),
        ("interval", "0s"),
        ("job", "../other"),
        ("job", ""),
        ("lanes", "two"),
        ("compaction.fanout", "1"),
        ("restore", " "),
    ],
)
def test_a_bad_value_is_refused_with_key_expectation_and_value(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        JobConfig.from_options({"dir": "/ckpt", key: value})
    assert f"spark.ckpt.{key}: expected" in str(error.value)
    assert repr(value) in str(error.value)


def test_an_unknown_key_is_refused_with_the_nearest_and_all_valid_keys() -> None:
    with pytest.raises(ConfigError) as error:
        config(maxParalelism="3")
    assert "Did you mean spark.ckpt.maxParallelism?" in str(error.value)
    for key in config_keys():
        assert key in str(error.value)


def test_a_missing_dir_is_refused_with_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.dir"):
        JobConfig.from_options({"spark.ckpt.interval": "3s"})


def test_keys_work_with_and_without_prefix_and_in_any_case() -> None:
    conf = {"spark.ckpt.dir": "/ckpt", "spark.ckpt.maxConcurrent": "2"}
    assert JobConfig.from_options(conf) == JobConfig.from_options({"DIR": "/ckpt", "maxconcurrent": "2"})


def test_other_keys_of_a_session_are_passed_over() -> None:
    conf = {"spark.ckpt.dir": "/ckpt", "spark.sql.shuffle.partitions": "7", "spark.app.name": "x"}
    assert JobConfig.from_options(conf) == config()


def test_overrides_win_over_the_session() -> None:
    merged = JobConfig.from_options({"spark.ckpt.dir": "/a", "spark.ckpt.retain": "3"}, {"retain": "5"})
    assert (merged.dir, merged.retain) == ("/a", 5)


def test_a_key_given_twice_with_different_values_is_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        JobConfig.from_options({"dir": "/a", "spark.ckpt.dir": "/b"})


def test_an_initial_delay_stays_open_until_it_is_given() -> None:
    assert config().initial_delay_ms is None
    assert config(initialDelay="0").initial_delay_ms == 0


@pytest.mark.parametrize("options", [{"storage.key": "hunter2"}, {"storge.key": "hunter2"}, {"Storage.KEY": "hunter2"}])
def test_secrets_are_never_shown(options: dict[str, str]) -> None:
    try:
        shown = repr(JobConfig.from_options({"dir": "/ckpt", **options, "storage.client_kwargs": '{"a": "hunter2"}'}))
    except ConfigError as error:
        shown = f"{error!r} {error.__cause__!r}"
    assert "hunter2" not in shown


def test_a_malformed_json_storage_option_is_refused_without_its_value() -> None:
    with pytest.raises(ConfigError, match=r"storage\.client_kwargs") as error:
        config(storage__client_kwargs='{"secret": hunter2}').storage_options()
    assert "hunter2" not in str(error.value)
    assert error.value.__suppress_context__


@pytest.mark.parametrize("key", ["dir", "restore"])
def test_a_password_in_a_url_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.storage") as error:
        JobConfig.from_options({"dir": "/ckpt"}, {key: "s3://user:hun/ter2@bucket/x".replace("/ter", "@ter")})
    assert "ter2" not in str(error.value)


def test_urls_without_password_stay_readable() -> None:
    assert redact_url("abfs://container@account.dfs.core.windows.net/x") == (
        "abfs://container@account.dfs.core.windows.net/x"
    )
    assert redact_url("hdfs://host:9000/a@b") == "hdfs://host:9000/a@b"


def test_storage_options_nest_and_keep_numbers_as_text() -> None:
    options = config(
        storage__key="0123", storage__anon="false", storage__client_kwargs__endpoint_url="http://x", storage__a="[1]"
    ).storage_options()
    assert options == {"key": "0123", "anon": False, "client_kwargs": {"endpoint_url": "http://x"}, "a": [1]}


def test_a_storage_option_below_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="below a value"):
        config(storage__a="x", storage__a__b="y").storage_options()


_DURATIONS = st.integers(1, 10**9).map(lambda n: f"{n}ms")
_SIZES = st.integers(1, 2**40).map(str)
_OPTIONS = st.fixed_dictionaries(
    {"dir": st.sampled_from(["/a", "s3://b/c", "memory://x"])},
    optional={
        "job": st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True),
        "interval": _DURATIONS,
        "initialDelay": _DURATIONS,
        "mode": st.sampled_from(["exactly_once", "at_least_once"]),
        "minPause": _DURATIONS,
        "timeout": _DURATIONS,
        "maxConcurrent": st.integers(1, 100).map(str),
        "tolerableFailures": st.integers(0, 100).map(str),
        "retain": st.integers(1, 100).map(str),
        "retention": st.sampled_from(["delete", "retain"]),
        "restore": st.sampled_from(["auto", "none", "17", "s3://b/savepoint"]),
        "allowNonRestoredState": st.sampled_from(["true", "false"]),
        "maxParallelism": st.integers(1, 32768).map(str),
        "lanes": st.integers(1, 100).map(str),
        "alignment.maxBufferedBytes": _SIZES,
        "memtable.maxBytes": _SIZES,
        "cache.dir": st.just("/tmp/x"),
        "cache.maxBytes": _SIZES,
        "compaction.fanout": st.integers(2, 100).map(str),
        "compaction.maxRuns": st.integers(1, 100).map(str),
        "history": st.sampled_from(["true", "false"]),
        "hooks": st.just("a.b:C"),
        "triggerPollInterval": _DURATIONS,
        "storage.key": st.text(min_size=1),
    },
)


@given(_OPTIONS)
def test_options_survive_the_round_trip_through_sparks_case_folding(options: dict[str, str]) -> None:
    parsed = JobConfig.from_options(options)
    baked = {key.lower(): value for key, value in parsed.to_options().items()}
    assert JobConfig.from_options({}, baked) == parsed
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_config_keys_are_told_from_options_of_sources_and_sinks() -> None:
    assert is_config_key("maxparallelism")
    assert is_config_key("spark.ckpt.storage.key")
    assert not is_config_key("fileFormat")


def test_the_documentation_lists_exactly_the_keys_there_are() -> None:
    assert config_table() in DOCS.read_text(), "docs/configuration.md is stale: run scripts/config_docs.py"
