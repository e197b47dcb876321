"""A keyed operator behind a DataFrame. Driver only."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from spark_ckpt.api.dataframe import CkptDataFrame
from spark_ckpt.plan.attributes import by_name
from spark_ckpt.plan.key_columns import Keys
from spark_ckpt.plan.keyed_operator import KeyedRows, Upstream, checked_uid, keyed_rows
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.topn.function import TopN


def keyed(
    parent: CkptDataFrame,
    uid: str | None,
    function: StateFunction,
    columns: list[str],
    keys: Keys,
    output_mode: str | None = None,
    whole_in_complete: bool = False,
    asked: Collection[str] | None = None,
    takes_updates: bool = False,
) -> CkptDataFrame:
    """A keyed operator behind ``parent``; see :func:`spark_ckpt.plan.keyed_operator.keyed_rows`."""
    made = keyed_rows(
        upstream_of(parent),
        checked_uid(uid),
        function,
        columns,
        keys,
        output_mode,
        whole_in_complete,
        asked,
        takes_updates,
    )
    return behind_operator(parent, made, _handed_on(parent, function, keys))


def upstream_of(parent: CkptDataFrame) -> Upstream:
    return Upstream(parent._recipe, parent._lineage, parent.schema, parent._for_expressions)


def behind_operator(parent: CkptDataFrame, made: KeyedRows, handed_on: Iterable[str]) -> CkptDataFrame:
    """What an operator puts out, some of whose columns are those of ``parent``."""
    preview = parent._session.preview(with_control(made.schema))
    df = CkptDataFrame(parent._session, made.recipe, made.lineage, preview)
    return df._with(by_name(parent._attributes, df.columns, handed_on))


def _handed_on(parent: CkptDataFrame, function: StateFunction, keys: Keys) -> Iterable[str]:
    """The columns that come out as they are. What a function of the user's gives is new, whatever it is called."""
    if function.passes_rows or isinstance(function, TopN) or getattr(function, "emit", "") == "rows":
        return parent.columns
    return keys.columns if isinstance(function, AggregateFunction | WindowedAggregate) else ()
