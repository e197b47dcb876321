"""Savepoints that earlier versions took go on here, with their state and at their position, whatever their uids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.sinks import memory
from tests.savepoints.programs import END, END_OF_SAVEPOINT, PROGRAMS, row, started
from tests.spark.conftest import DEADLINE_S

KEPT = Path(__file__).parents[1] / "savepoints"
VERSIONS = sorted(path.name for path in KEPT.iterdir() if path.is_dir() and path.name[0].isdigit())
PARAMS = [pytest.param(v, marks=[] if v == VERSIONS[0] else pytest.mark.soak) for v in VERSIONS]
"""The oldest one with all tests: what can read that can mostly read the others."""

ROWS = [row(number) for number in range(END)]
Results = dict[tuple[str, str], tuple[int, str]]


def by_key(key: Callable[[Any], Any], rows: list[Any]) -> dict[Any, list[Any]]:
    grouped: dict[Any, list[Any]] = defaultdict(list)
    for found in rows:
        grouped[key(found)].append(found)
    return grouped


def of_updated() -> Results:
    results: Results = {}
    for k, all_rows in by_key(lambda r: r[1], ROWS).items():
        rows = [r for r in all_rows if r[2] % 7]
        values = [r[2] for r in rows]
        text = f"{sum(values)} {sum(values) / len(values)} {max(r[3] for r in rows):%Y-%m-%d %H:%M:%S}"
        text += f" {len(set(values))} [{', '.join(map(str, sorted({v % 4 for v in values})))}]"
        results["totals", k] = len(rows), text
        values = [r[2] for r in all_rows]
        results["sessions", k] = len(values), str(min(values))
        odd = sum(v % 2 for v in values)
        counts = [(o, n) for o, n in ((False, len(values) - odd), (True, odd)) if n]
        results["seen", k] = len(values), f"{sum(values)} {values[-3:]} {counts}"
    for digit, pairs in by_key(lambda p: p[1], sorted({(r[1], r[2] % 10) for r in ROWS})).items():
        results["digits", str(digit)] = len(pairs), str(sum(ord(k) for k, _ in pairs))
    return results


def newest(rows: list[dict[str, Any]]) -> Results:
    found: Results = {}
    for r in sorted(rows, key=lambda r: r["n"]):
        found[r["operator"], r["key"]] = r["n"], r["value"]
    return found


def of_appended() -> set[tuple[str, str, int, str]]:
    """Windows that the savepoint had not put out, and pairs whose later row was behind it."""
    expected = set()
    for tens in (2, 3):
        for k, rows in by_key(lambda r: r[1], [r for r in ROWS if r[3].minute // 10 == tens]).items():
            expected.add(("windows", f"00:{tens}0 {k}", len(rows), str(sum(r[2] for r in rows))))
    return expected | {("joined", str(n - 5), 1, str(n)) for n in range(END_OF_SAVEPOINT, END)}


def of_top() -> list[tuple[str, int, int]]:
    best = {k: sorted((r[2] for r in rows), reverse=True)[:2] for k, rows in by_key(lambda r: r[1], ROWS).items()}
    return [(k, rank, v) for k, values in sorted(best.items()) for rank, v in enumerate(values, 1)]


@pytest.fixture(params=PARAMS)
def restored(request: Any, spark: Any, ckpt: Any, tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """All rows that a program puts out behind its savepoint."""

    def run(program: str) -> list[dict[str, Any]]:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        given = {"restore": str(KEPT / request.param / program), "job": f"{program}-again"}
        writer = started(ckpt, program, END, str(tmp_path / "sink"), **given).trigger(availableNow=True)
        assert writer.start().awaitTermination(DEADLINE_S)
        rows: list[dict[str, Any]] = memory.read(str(tmp_path / "sink")).to_pylist()
        return rows

    return run


def test_every_program_has_a_savepoint_of_every_version() -> None:
    assert VERSIONS
    assert all((KEPT / version / program / "savepoint.json").exists() for version in VERSIONS for program in PROGRAMS)


def test_updates_go_on_from_the_state_of_each_key(restored: Any) -> None:
    found, expected = newest(restored("updated")), of_updated()
    assert {key: expected[key] for key in found} == found
    assert {operator for operator, _ in found} == {"totals", "sessions", "seen", "digits"}
    touched = {(operator, k) for operator in ("totals", "sessions", "seen") for k in "abcde"}
    assert touched <= set(found)


def test_windows_and_joins_go_on_with_the_rows_that_waited(restored: Any) -> None:
    assert {tuple(r.values()) for r in restored("appended")} == of_appended()


def test_a_top_n_goes_on_with_the_rows_it_kept(restored: Any) -> None:
    """Each rank that changes comes out: what the memory sink then holds is right for every rank that it has."""
    found = {(r["k"], r["r"], r["v"]) for r in restored("top")}
    assert found
    assert found <= set(of_top())
