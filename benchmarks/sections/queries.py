"""Streaming operators on ours, plain Spark and Flink SQL, one after the other for each query and number of keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.engines import FLINK_SQL, OURS, SPARK, Engines
from benchmarks.loads import START_S, Load, Phase
from benchmarks.measuring import Run, WorkerError, summary
from benchmarks.query_answers import digest, newest, settled, there
from benchmarks.sections.keyed import FEW, MANY, M, endless
from benchmarks.sections.others import MINI_BATCH
from benchmarks.sections.running import merged, say
from benchmarks.slopes import growing
from benchmarks.workers.queries import GROUPS, QUERIES, STREAM_JOIN, TOP_N, WITHIN_WATERMARK

_WITHOUT_TIME = ("agg", "join, static", TOP_N)
_TWICE = ("dropDuplicates", WITHIN_WATERMARK)
"""Event time moves on every second batch, so that half of the rows are duplicates where there are as many keys."""
_SECONDS = 1_000_000


def section(group: str) -> Callable[[bool], dict[str, Any]]:
    """What measures the queries of ``group``. A side that fails says so, and the others are measured all the same."""

    def measure(quick: bool) -> dict[str, Any]:
        with Engines() as engines:
            found = {}
            for keys in (FEW, MANY):
                for name in GROUPS[group]:
                    for engine in _engines(name):
                        say(f"{engine}, {name}, {keys} keys")
                        found[f"{engine}, {name}, {keys} keys"] = _measured(engines, engine, name, keys, quick)
            return found

    measure.__doc__ = f"{', '.join(GROUPS[group])}: ours, plain Spark and Flink SQL."
    return measure


def _engines(name: str) -> tuple[str, ...]:
    return (OURS, FLINK_SQL) if name == TOP_N else (OURS, SPARK, FLINK_SQL)


def _measured(engines: Engines, engine: str, name: str, keys: int, quick: bool) -> dict[str, Any]:
    try:
        if engine == FLINK_SQL:
            return _flink(engines, name, keys, quick)
        run = _run(engine, name, keys)
        run = run.quick() if quick else run
        answer = engines.spark(engine, run)
        return merged([{**summary(answer, run), "checkpoints": answer.get("checkpoints")}])
    except WorkerError as e:
        say(f"failed: {e}")
        return {"failed": str(e)[:300]}


def _load(name: str, keys: int) -> Load:
    if name == STREAM_JOIN:  # a moment is two rounds of all keys, one for each stream
        return endless(keys, max(M, 2 * keys), window_rows=2 * keys)
    return endless(keys, window_rows=0 if name in _WITHOUT_TIME else 2 * M if name in _TWICE else M)


def _run(engine: str, name: str, keys: int) -> Run:
    """A JVM compiles for some ten seconds; a batch of plain Spark's can take that long with many keys."""
    run = Run(name, _load(name, keys), seconds=8, warm_up=15, min_batches=2, max_seconds=40)
    if keys == MANY:
        return replace(run, warm_up=4) if engine == OURS else replace(run, warm_up=2, seconds=4)
    return run if engine == OURS else replace(run, warm_up=12)


def _flink(engines: Engines, name: str, keys: int, quick: bool) -> dict[str, Any]:
    load = _load(name, keys)
    request = {"query": name, "keys": keys, "window_rows": load.window_rows or M}
    request["mini_batch"] = MINI_BATCH[keys] if name == "agg" else 0
    if quick:
        request |= {"keys": max(100, keys // 100), "window_rows": max(1, request["window_rows"] // 100)}
    memory: dict[str, Any] = {}

    def seconds(rows: int) -> float:
        answer = engines.flink({**request, "rows": rows})
        memory.update(answer["memory"])
        return float(answer["seconds"])

    return {
        "keys": keys,
        **growing(seconds, 20_000 if quick else max(M, 2 * keys), quick),
        "memory": memory,
        "options": request,
    }


# -- whether they answer the same -----------------------------------------------------------------------------------

_MOMENTS, _KEYS = 10, 200
_CLOSED = (START_S + (_MOMENTS - 5) * 10) * _SECONDS
"""All engines have closed the windows that start before."""


def answers(quick: bool) -> dict[str, Any]:  # noqa: ARG001 - small in any case
    """The rows that each query puts out, of 12 K rows and 200 keys: the same on all engines?"""
    found: dict[str, Any] = {}
    with Engines() as engines:
        for name in QUERIES:
            say(name)
            by_engine = {
                e: _answer(engines, e, name) for e in _engines(name) if (e, name) != (FLINK_SQL, WITHIN_WATERMARK)
            }
            equal = len({str(one) for one in by_engine.values()}) == 1 and not any(
                "failed" in o for o in by_engine.values()
            )
            found[name] = {"engines": by_engine, "equal": equal}
            if not equal:
                say(f"not the same: {by_engine}")
    return found


def _answer(engines: Engines, engine: str, name: str) -> dict[str, Any]:
    rows = 6 * _KEYS
    load = Load(_KEYS, (Phase(rows, _MOMENTS),), window_rows=2 * _KEYS if name == STREAM_JOIN else rows)
    try:
        if engine == FLINK_SQL:
            request = {"query": name, "keys": _KEYS, "window_rows": load.window_rows, "rows": load.total}
            request |= {"answer": True, "mini_batch": MINI_BATCH[FEW] if name == "agg" else 0}
            changes = engines.flink(request)["changes"]
        else:
            load = replace(load, window_rows=0) if name in _WITHOUT_TIME else load
            changes = engines.spark(engine, Run(name, load, warm_up=0, answer=True))["changes"]
        return digest(final(name, engine, [(kind, tuple(row)) for kind, row in changes]))
    except (WorkerError, ValueError) as e:
        return {"failed": str(e)[:300]}


def final(name: str, engine: str, changes: list[tuple[str, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """What is there in the end. Rows of output mode update update each other, and say so only in Flink."""
    updating = QUERIES[name].mode == "update" and engine != FLINK_SQL
    rows = newest(row for _, row in changes) if updating else there(changes)
    return settled(rows, _CLOSED) if QUERIES[name].columns[0] == "window" else rows
