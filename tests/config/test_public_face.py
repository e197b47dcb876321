"""What users import, read about and mistype: names, types, texts and hints. Needs no Spark."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery
from typer.testing import CliRunner

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.plan.analysed.uids import with_uid
from spark_ckpt.plan.grouped_methods import aggregate, applyInArrowWithState, topN
from tests.config.shown_code import members

CLASSES = [
    spark_ckpt.CkptSession,
    spark_ckpt.CkptDataStreamReader,
    spark_ckpt.CkptDataStreamWriter,
    spark_ckpt.CkptQuery,
    spark_ckpt.CkptState,
    spark_ckpt.Job,
    spark_ckpt.Savepoint,
    spark_ckpt.State,
    spark_ckpt.TwoPhaseSink,
    spark_ckpt.SinkWriter,
    spark_ckpt.CheckpointHooks,
]
MODULES = [
    importlib.import_module(f"spark_ckpt.{name}")
    for name in ("agg", "api.read", "api.session", "jobs.job", "jobs.savepoint", "sinks.registry")
]
"""Of functions that users call."""


class Added:
    """What ``enable`` adds to PySpark's DataFrames and grouped data."""

    uid = staticmethod(with_uid)
    aggregate, applyInArrowWithState, topN = map(staticmethod, (aggregate, applyInArrowWithState, topN))


def _public(cls: type) -> dict[str, Any]:
    return {n: m for n, m in vars(cls).items() if not n.startswith("_") and (callable(m) or isinstance(m, property))}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_help_says_something_of_every_class_and_method(cls: type) -> None:
    assert inspect.getdoc(cls)
    assert [n for n, method in _public(cls).items() if not inspect.getdoc(method)] == []


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_method_says_what_it_returns(cls: type) -> None:
    functions = {n: m.fget if isinstance(m, property) else m for n, m in _public(cls).items()}
    untyped = [n for n, f in functions.items() if inspect.isfunction(f) and "return" not in f.__annotations__]
    assert untyped == []


OWNERS = [*CLASSES, *MODULES, Added]
SPARKS: dict[type, type] = {
    spark_ckpt.CkptQuery: StreamingQuery,
    spark_ckpt.CkptDataStreamReader: DataStreamReader,
    spark_ckpt.CkptDataStreamWriter: DataStreamWriter,
}


def _parameters(function: Any) -> list[str]:
    return [p for p in inspect.signature(function).parameters if p not in ("self", "cls", "grouped")]


@pytest.mark.parametrize("owner", OWNERS, ids=lambda o: o.__name__)
def test_help_explains_every_parameter(owner: Any) -> None:
    """By its name, in the method's text or the class's; ``timeout_s`` and ``min_age_s`` say their unit themselves."""
    text = {n: f"{inspect.getdoc(owner)} {inspect.getdoc(f)}" for n, f in members(owner).items()}
    silent = [
        f"{name}({parameter})"
        for name, function in members(owner).items()
        for parameter in _parameters(function)
        if not re.search(rf"``[^`]*\b{parameter}\b[^`]*``", text[name])
    ]
    assert silent == []


@pytest.mark.parametrize("owner", OWNERS, ids=lambda o: o.__name__)
def test_help_names_every_error_that_a_method_raises(owner: Any) -> None:
    silent = []
    for name, function in members(owner).items():
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        raised = {
            node.exc.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
        }
        ours = {e for e in raised if hasattr(spark_ckpt.errors, e)}
        silent += [f"{name} raises {e}" for e in ours if f"``{e}``" not in (inspect.getdoc(function) or "")]
    assert silent == []


@pytest.mark.parametrize("owner", OWNERS, ids=lambda o: o.__name__)
def test_what_is_said_to_be_pysparks_is(owner: Any) -> None:
    said = {n for n, f in members(owner).items() if (inspect.getdoc(f) or "").startswith("As PySpark's")}
    assert {n for n in said if not hasattr(SPARKS.get(owner), n)} == set()


def test_help_refers_to_what_is_there() -> None:
    """``:meth:`stop` `` and such, in what users read."""
    broken = []
    for owner in [spark_ckpt, *CLASSES]:
        for name, documented in {"": owner, **members(owner)}.items():
            for path in re.findall(r":(?:meth|class|func|mod):`~?([\w.]+)`", inspect.getdoc(documented) or ""):
                home = getattr(owner, "__module__", owner.__name__)
                places = (path, f"{home}.{path}", f"{home}.{owner.__name__}.{path}")
                if not any(pydoc.locate(place) for place in places):
                    broken.append(f"{owner.__name__}.{name}: {path}")
    assert broken == []


def test_a_chain_of_calls_keeps_its_types() -> None:
    def returns(cls: type, name: str) -> str:
        found = inspect.getattr_static(cls, name)
        return str((found.fget if isinstance(found, property) else found).__annotations__["return"])

    assert returns(spark_ckpt.CkptSession, "readStream") == "CkptDataStreamReader"
    assert returns(spark_ckpt.CkptDataStreamReader, "load") == "DataFrame"
    assert returns(Added, "topN") == returns(Added, "uid") == "DataFrame"
    assert returns(spark_ckpt.CkptSession, "writeStream") == "CkptDataStreamWriter"
    assert returns(spark_ckpt.CkptDataStreamWriter, "start") == "CkptQuery | RestorePlan"


def test_every_name_that_is_exported_is_there_and_no_other() -> None:
    assert {n for n in spark_ckpt.__all__ if getattr(spark_ckpt, n) is None} == set()
    assert set(spark_ckpt.__all__) <= set(dir(spark_ckpt))
    with pytest.raises(AttributeError, match="no attribute 'enabel'"):
        spark_ckpt.enabel  # noqa: B018


@pytest.mark.parametrize(
    ("cls", "mistyped", "hint"),
    [
        (spark_ckpt.CkptSession, "readstream", "did you mean readStream?"),
        (spark_ckpt.CkptSession, "range", "call it on the session itself, ckpt.spark"),
        (spark_ckpt.CkptDataStreamReader, "shcema", "did you mean schema?"),
        (spark_ckpt.CkptDataStreamWriter, "clusterBy", "partitionBy(...) is there"),
        (spark_ckpt.CkptDataStreamWriter, "outputmode", "did you mean outputMode?"),
        (spark_ckpt.CkptDataStreamWriter, "tigger", "did you mean trigger?"),
        (spark_ckpt.Job, "checkpoint_", "did you mean checkpoint or checkpoints?"),
    ],
)
def test_what_is_mistyped_or_has_another_form_here_says_so(cls: type, mistyped: str, hint: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(object.__new__(cls), mistyped)
    assert hint in str(raised.value)
    assert str(raised.value).startswith(f"{cls.__name__} has no {mistyped!r}: ")


def test_objects_can_be_asked_for_what_is_private_and_not_there() -> None:
    for cls in CLASSES:
        assert not hasattr(object.__new__(cls) if not inspect.isabstract(cls) else cls, "__nothing__")


def test_the_command_tells_its_version_and_runs_as_a_module() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.output) == (0, f"spark-ckpt {spark_ckpt.__version__}\n")
    done = subprocess.run([sys.executable, "-m", "spark_ckpt", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == said.output
