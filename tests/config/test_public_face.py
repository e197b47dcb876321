"""What users import, read about and mistype: names, types, texts and hints. Needs no Spark."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

import spark_ckpt
from spark_ckpt.cli import app

CLASSES = [
    spark_ckpt.CkptSession,
    spark_ckpt.CkptDataStreamReader,
    spark_ckpt.CkptDataFrame,
    spark_ckpt.CkptGroupedData,
    spark_ckpt.CkptDataStreamWriter,
    spark_ckpt.CkptQuery,
    spark_ckpt.Job,
    spark_ckpt.TwoPhaseSink,
    spark_ckpt.SinkWriter,
    spark_ckpt.CheckpointHooks,
]


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


def test_a_chain_of_calls_keeps_its_types() -> None:
    def returns(cls: type, name: str) -> str:
        found = inspect.getattr_static(cls, name)
        return str((found.fget if isinstance(found, property) else found).__annotations__["return"])

    assert returns(spark_ckpt.CkptSession, "readStream") == "CkptDataStreamReader"
    assert returns(spark_ckpt.CkptDataStreamReader, "load") == "CkptDataFrame"
    assert returns(spark_ckpt.CkptDataFrame, "groupBy") == "CkptGroupedData"
    assert returns(spark_ckpt.CkptGroupedData, "aggregate") == "CkptDataFrame"
    assert returns(spark_ckpt.CkptDataFrame, "writeStream") == "CkptDataStreamWriter"
    assert returns(spark_ckpt.CkptDataStreamWriter, "start") == "CkptQuery"


def test_every_name_that_is_exported_is_there_and_no_other() -> None:
    assert {n for n in spark_ckpt.__all__ if getattr(spark_ckpt, n) is None} == set()
    assert set(spark_ckpt.__all__) <= set(dir(spark_ckpt))
    with pytest.raises(AttributeError, match="no attribute 'enabel'"):
        spark_ckpt.enabel  # noqa: B018


@pytest.mark.parametrize(
    ("cls", "mistyped", "hint"),
    [
        (spark_ckpt.CkptSession, "readstream", "did you mean readStream?"),
        (spark_ckpt.CkptSession, "sql", "call it on the session itself, ckpt.spark"),
        (spark_ckpt.CkptDataStreamReader, "shcema", "did you mean schema?"),
        (spark_ckpt.CkptDataStreamReader, "parquet", 'format("files").option("fileFormat", "parquet")'),
        (spark_ckpt.CkptGroupedData, "agg", "write aggregate(uid="),
        (spark_ckpt.CkptGroupedData, "averge", "there are aggregate, applyIn"),
        (spark_ckpt.CkptGroupedData, "applyinPandasWithState", "did you mean applyInPandasWithState"),
        (spark_ckpt.CkptDataStreamWriter, "toTable", 'format("delta")'),
        (spark_ckpt.CkptDataStreamWriter, "outputmode", "did you mean outputMode?"),
        (spark_ckpt.CkptDataStreamWriter, "tigger", "did you mean trigger?"),
        (spark_ckpt.Job, "checkpoint_", "did you mean checkpoints?"),
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
