"""``ckpt.wrap(df)``: a plain stream becomes one of ours. Driver."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.api._plain_options import source_of
from spark_ckpt.config import is_job_option
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import ordered, require_control
from spark_ckpt.plan.lineage import Lineage, SourceNode
from spark_ckpt.plan.plan_check import check_operation, plan_nodes
from spark_ckpt.plan.udf_plan import for_data_rows
from spark_ckpt.plan.wrapped import PlainStream, plain_stream
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.sources.base import open_source
from spark_ckpt.types import CONTROL_COLUMNS

_OPERATION = "wrap"


def wrapped(session: Any, df: Any) -> Any:
    """See :meth:`spark_ckpt.api.session.CkptSession.wrap`."""
    stream = plain_stream(df)
    require_control(df.columns)
    return _as_it_is(session, stream, df)


def _begun(session: Any, stream: PlainStream) -> tuple[Any, Recipe, SourceNode]:
    """The reader alone, and the session with its settings."""
    given = {k: v for k, v in stream.options.items() if is_job_option(k) and k.lower() != "lanes"}
    own = type(session)(session.spark, {**session._given, **given})
    config = own.config()
    schema = StructType([f for f in stream.schema if f.name not in CONTROL_COLUMNS])
    spec = source_of(stream.options, schema)
    open_source(spec.inner, spec.options, schema, f"{config.dir}/_none", config.storage_options())
    uid = next((v for k, v in stream.options.items() if k.lower() == "uid"), None)
    node = SourceNode(spec.inner, spec.options, schema, uid, config.lanes)
    full = with_control(schema)
    return own, Recipe(lambda _ctx: Chain(node, full)), node


def _as_it_is(session: Any, stream: PlainStream, df: Any) -> Any:
    """What the plan of ``df`` puts out, control rows among it."""
    own, begun, source = _begun(session, stream)
    preview = own.preview(with_control(source.schema))
    done = _grafted(stream, preview)
    check_operation(_OPERATION, preview, plan_nodes(preview), done, False)
    schema = StructType([f for f in df.schema if f.name not in CONTROL_COLUMNS])
    full = with_control(schema)

    def make(ctx: Any) -> Chain:
        return Chain(ordered(_grafted(stream, ctx.frame(begun)), df.columns), full)

    lineage = Lineage(1, (source,), plain_operations=("what ckpt.wrap got",))
    return own._frame(Recipe(make, (begun,)), lineage, schema)


def _grafted(stream: PlainStream, df: Any) -> Any:
    """The user's plan over ``df``; its functions in Python get data rows only."""
    return for_data_rows(stream.graft(df), df)
