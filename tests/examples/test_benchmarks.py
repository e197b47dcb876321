"""The benchmark suite's arithmetic, on figures made up here. What it measures is measured by ``make bench``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import cost_model, measuring, plots, query_answers, report, slopes
from benchmarks.__main__ import main, remaining
from benchmarks.aims import AIMS
from benchmarks.loads import HOT, START_S, ZIPF, Load, Phase, behind_warm_up, keys_of, zipf_share
from benchmarks.sections import TOGETHER, queries
from benchmarks.sections.curves import POINTS
from benchmarks.sections.state import growth_run
from benchmarks.workers.queries import GROUPS, QUERIES

MEMORY = {"total_mib": 3000, "jvm_mib": 1500, "python_worker_mib": 250}


def side(rows_per_s: float) -> dict[str, Any]:
    return {
        "rows_a_batch": 1000, "batches": 3, "median_s": 1.0, "mean_s": 1.0, "rows_per_s": rows_per_s, "memory": MEMORY,
    }  # fmt: skip


def stored(keys: int) -> dict[str, Any]:
    history = [
        {"touched": t, "written_rows": 3 * t, "written_bytes": 30 * t, "duration_ms": 900, "id": 1}
        for t in (1_000, 100_000)
    ]
    return {
        **side(1e5), "stored": keys, "fill_s": 9.0, "history": history, "disk_bytes": 10**9,
        "touched": {str(t): {"median_s": 0.5, "batches": 3} for t in (1_000, 10_000, 100_000, 1_000_000)},
        "restore": {"started_s": 1.0, "first_batch_s": 3.0},
    }  # fmt: skip


SAVEPOINTS = {
    "keys": 10_000_000, "bytes": 2**29, "files": 40, "checkpoint_s": 0.4, "savepoint_s": 3.0, "read_s": 1.5,
    "raw": {"write_s": 2.0, "read_s": 1.0, "rewrite_s": 5.0},
    "starts": {
        "fresh": {"started_s": 1.0, "first_batch_s": 4.0}, "restored": {"started_s": 2.0, "first_batch_s": 6.0},
        "fields": {"started_s": 2.5, "first_batch_s": 6.6}, "function": {"started_s": 17.0, "first_batch_s": 21.0},
    },
    "get": {"s": 0.01, "state_files": 2, "state_bytes": 2**20, "other_bytes": 2**12},
    "import": {"keys": 1_000_000, "s": 12.0, "raw_s": 6.0},
    "bootstrap": {"keys": 1_000_000, "rows": 4_000_000, "s": 8.0, "raw_s": 2.0},
}  # fmt: skip


TRUE = cost_model.Model((0.4, 0.3, 0.2, 1.1, 0.0, 0.05, 0.01, 0.2, 0.3))


def measured_points() -> list[dict[str, Any]]:
    return [{**p.settings(), "mean_s": TRUE.predict(p.settings())} for p in POINTS]


def results() -> dict[str, Any]:
    keys = ("10000 keys", "1000000 keys")
    data: dict[str, Any] = {
        "keyed": {f"{e}, {k}": side(1e6) for k in keys for e in ("ours", "ours without checkpoints", "jvm")},
        "state": {f"{m} M": stored(m * 1_000_000) for m in (1, 10, 30)},
        "curves": {"points": measured_points()},
        "savepoints": SAVEPOINTS,
    }
    machine = {
        "cpu": "x", "cores": 2, "memory_gib": 8, "system": "Linux", "python": "3", "java": "17", "ours": ["pyspark 4"],
        "peers": {"flink": ["apache-flink"]}, "commit": "abc",
    }  # fmt: skip
    return {
        "sections": {
            n: {"when": "2026-01-01T00:00:00+00:00", "seconds": 60, "machine": machine, "data": d}
            for n, d in data.items()
        }
    }


def test_a_warm_up_ends_when_its_batches_and_its_seconds_are_over() -> None:
    batches = [{"began": began} for began in (100.0, 104.0, 109.0, 111.0, 130.0)]
    assert behind_warm_up(batches, 2, 0) == batches[2:]
    assert behind_warm_up(batches, 2, 10) == behind_warm_up(batches, 0, 10) == batches[3:]
    assert behind_warm_up(batches, 2, 60) == behind_warm_up([], 2, 60) == []


def test_an_aim_without_its_figures_is_shown_as_not_measured() -> None:
    page = report.results_page(results(), [])
    rows = [line for line in page.splitlines() if "| Flink SQL | " in line]
    assert len(rows) == 2 + 2 * len(QUERIES)
    assert all(row.endswith("| not measured | - |") for row in rows)


def test_aims_compare_with_their_bound_in_the_right_direction() -> None:
    data = {n: s["data"] for n, s in results()["sections"].items()}
    shown = {(a.group, a.what): report.aim_row(a, a.measure(data)) for a in AIMS}
    assert shown["Spark JVM aggregation", "10 K keys, rows/s"][-2:] == ("1.00", "yes")
    assert shown["Spark JVM aggregation", "1 M keys, rows/s"][-2:] == ("1.00", "**no**")
    assert shown["1 M keys stored", "most keys stored, 100 K touched, batch time"][-2:] == ("1.00", "yes")


def test_savepoints_are_compared_with_what_raw_parquet_takes() -> None:
    found = {
        aim.what: aim.measure({"savepoints": SAVEPOINTS}) for aim in AIMS if aim.measure({"savepoints": SAVEPOINTS})
    }
    assert list(found.values()) == pytest.approx([1.5, 2.0, 1.5, 3.0, 1.1])
    page = report.results_page(results(), [])
    assert "| savepoint | 3.00 | 2.00 | 1.50 |" in page
    assert "| migrated, beyond a restore | 15.00 | 5.00 | 3.00 |" in page
    assert "| bootstrap of 1,000,000 keys, 4,000,000 rows | 8.00 | 2.00 | 4.00 |" in page
    assert "read 1,024 KiB of 2 of 40 state files (512 MiB), and 4 KiB of records" in page


def test_no_aims_value_comes_from_nothing() -> None:
    assert all(aim.measure({}) is None for aim in AIMS)


def test_the_report_shows_every_measured_section_and_plot(tmp_path: Path) -> None:
    found = results()
    drawn = plots.draw_all({n: s["data"] for n, s in found["sections"].items()}, tmp_path)
    page = report.results_page(found, drawn)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(drawn) == sorted(plots.PLOTS)
    assert all(f"](plots/{name})" in page for name in drawn)
    assert all(f"## {report.TITLES[name]}" in page for name in found["sections"])


def test_the_cost_model_finds_the_costs_its_points_were_made_with() -> None:
    _, checks = cost_model.fit_and_check(measured_points())
    assert cost_model.worst_held_out(checks) < 0.02
    assert "25%" in report.model_page(measured_points())


def test_no_term_of_the_cost_model_is_negative() -> None:
    noise = np.random.default_rng(1).uniform(0.5, 2, len(POINTS))
    points = [{**p, "mean_s": p["mean_s"] * n} for p, n in zip(measured_points(), noise)]
    assert min(cost_model.fit(points).seconds) >= 0


def test_a_load_ends_where_its_phases_say() -> None:
    load = Load(10, (Phase(100, 2), Phase(10, 3)))
    at, ends = 0, []
    while at < (load.total or 0):
        at = load.end(at)
        ends.append(at)
    assert ends == [100, 200, 210, 220, 230]
    assert [load.phase_of(row) for row in (0, 199, 200, 229)] == [0, 0, 1, 1]
    assert Load.from_json(json.loads(json.dumps(load.to_json()))) == load


@pytest.mark.parametrize("size", [1_000_000, 10_000_000, 30_000_000])
def test_filling_touches_every_key_once(size: int) -> None:
    fill = growth_run(size).load.phases[0]
    assert fill.rows * (fill.batches or 0) == size


def test_keys_are_spread_as_the_load_says() -> None:
    rows = np.arange(100_000)
    even = keys_of(Load(1000, (Phase(1),)), rows)
    assert set(np.bincount(even, minlength=1000)) == {100}
    hot = keys_of(Load(1000, (Phase(1),), spread=HOT), rows)
    assert np.bincount(hot).max() / len(rows) == pytest.approx(0.5, abs=0.01)
    zipf = keys_of(Load(1000, (Phase(1),), spread=ZIPF, zipf=1.5), rows)
    assert np.bincount(zipf).max() / len(rows) == pytest.approx(zipf_share(1000, 1.5), abs=0.01)


def test_a_slope_grows_until_there_is_work_to_measure() -> None:
    asked: list[int] = []

    def seconds(rows: int) -> float:
        asked.append(rows)
        return 3 + rows / 1e6

    found = slopes.growing(seconds, 500_000)
    assert asked == [500_000, 500_000, 1_500_000, 4_500_000]
    assert found["rows_per_s"] == pytest.approx(1e6)


def test_start_up_does_not_count_in_a_slope() -> None:
    assert slopes.slope(slopes.Sizes(10, 1000, 5000), [10.0, 9.0, 11.0], [12.0]) == 2000


def test_throughput_counts_what_passes_between_batches() -> None:
    batches = [{"rows": 100, "ms": 500, "began": 10.0}, {"rows": 100, "ms": 500, "began": 11.5}]
    assert measuring.rows_per_s(batches) == 100
    assert measuring.median_s(batches) == 0.5


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])


CHANGES = [("+I", (1, 1, 5)), ("+I", (2, 1, 7)), ("-U", (1, 1, 5)), ("+U", (1, 2, 9)), ("-D", (2, 1, 7))]


def test_what_is_there_in_the_end_follows_from_changes_and_from_updates() -> None:
    assert query_answers.there(CHANGES) == [(1, 2, 9)]
    assert query_answers.newest([(1, 2, 9), (1, 1, 5), (2, 1, 7)]) == [(1, 2, 9), (2, 1, 7)]
    with pytest.raises(ValueError, match="was not there"):
        query_answers.there([("-D", (1,))])


def test_engines_are_compared_by_what_is_settled() -> None:
    """Updates that plain Spark does not mark; retractions of Flink's; windows that only one of them has closed."""
    assert queries.final("agg", "spark", [("+I", (1, 1, 5, 5)), ("+I", (1, 2, 9, 5))]) == [(1, 2, 9, 5)]
    flink = [("+I", (1, 1, 5, 5)), ("-U", (1, 1, 5, 5)), ("+U", (1, 2, 9, 5))]
    assert queries.final("agg", "Flink SQL", flink) == [(1, 2, 9, 5)]
    late = [("+I", ((START_S + 90) * 1_000_000, 1, 1, 1)), ("+I", (0, 1, 1, 1))]
    assert queries.final("windows, tumbling", "ours", late) == [(0, 1, 1, 1)]


def test_equal_answers_have_equal_digests() -> None:
    assert query_answers.digest([(1, 2)]) == query_answers.digest([(1, 2)])
    assert query_answers.digest([(1, 2)]) != query_answers.digest([(1, 3)])


def test_every_query_has_a_section_and_flinks_words() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(QUERIES)
    assert set(TOGETHER["queries"]) - {"answers"} == set(GROUPS)
    assert all(group in report.TITLES for group in GROUPS)


def test_a_run_that_failed_is_named_and_fails_no_report() -> None:
    found = results()
    section = {"ours, agg, 10000 keys": side(2e6), "spark, agg, 10000 keys": {"failed": "killed | late\nmore"}}
    found["sections"]["aggregates"] = {**found["sections"]["keyed"], "data": section}
    equal = {"rows": 3, "digest": "x"}
    answers = {"agg": {"engines": {"ours": equal, "Flink SQL": equal}, "equal": True}}
    found["sections"]["answers"] = {**found["sections"]["keyed"], "data": answers}
    page = report.results_page(found, [])
    assert "| Spark (RocksDB), agg, 10 K keys | failed: killed / late | - | - | - | - | - |" in page
    assert "| agg | spark_ckpt, Flink SQL | 3 | yes |" in page
    assert "| Spark JVM operator | agg, 10 K keys, rows/s | at least 1 | not measured | - |" in page


def test_what_this_commit_has_measured_is_left_out_when_the_suite_goes_on() -> None:
    known = results()
    assert remaining(["keyed", "joins"], known, "abc-dirty") == ["joins"]
    assert remaining(["keyed", "joins"], known, "abd") == ["keyed", "joins"]
    assert remaining(["keyed"], known, None) == ["keyed"]
