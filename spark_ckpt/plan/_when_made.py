"""What Spark goes by when it analyses a DataFrame: settings, and what names stand for. Driver.

It analyses when the DataFrame is made. A start builds the plan anew, when the session may say something else: what it
said is kept, and put back for the while. Spark Connect analyses a stream when it starts, so nothing is kept there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from spark_ckpt.plan._analysis_confs import Confs, confs_now, settings, with_confs
from spark_ckpt.plan._analysis_names import Maps, copies, names, with_names
from spark_ckpt.plan.chain import InSpark, Recipe
from spark_ckpt.plan.session_confs import CHANGING


class _Said(NamedTuple):
    confs: Confs
    names: Maps


class _Session:
    """Few DataFrames are made behind a change: one call of the JVM tells, and most share what was said."""

    def __init__(self, spark: Any) -> None:
        self.names = names(spark)
        self._settings = settings(spark)
        self._live = spark._jvm.java.util.ArrayList([self._settings, *self.names])
        self._copies: Any = None
        self._said: _Said | None = None

    def now(self, spark: Any) -> _Said:
        if self._said is None or not self._live.equals(self._copies):
            java = spark._jvm.java.util
            self._said = _Said(confs_now(spark), copies(self.names))
            self._copies = java.ArrayList([java.HashMap(self._settings), *self._said.names])
        return self._said


_made: WeakKeyDictionary[Recipe, _Said] = WeakKeyDictionary()
_sessions: WeakKeyDictionary[Any, _Session] = WeakKeyDictionary()


@contextmanager
def as_when_made(recipe: Recipe, spark: Any) -> Iterator[None]:
    """With what the session said then, and what it says now behind it."""
    then = _made.get(recipe)
    if then is None or then is _now(spark):
        yield
        return
    with CHANGING:  # no query starts with these, and no thread takes them for the session's
        now, live = _now(spark), _sessions[spark].names
        with with_confs(spark, then.confs, now.confs), with_names(live, then.names, now.names):
            yield


def step_as_when_made(recipe: Recipe, spark: Any, step: InSpark) -> InSpark:
    """``step`` of ``recipe``, which is done only when somebody goes on in Spark."""

    def done(rows: Any) -> Any:
        with as_when_made(recipe, spark):
            return step(rows)

    return done


def _now(spark: Any) -> _Said:
    if spark not in _sessions:
        _sessions[spark] = _Session(spark)
    return _sessions[spark].now(spark)
