"""The page of what users can write: its tables are the code's; readers, writers and queries have PySpark's methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery, StreamingQueryManager

import spark_ckpt
from spark_ckpt.api._streams import CkptStreams
from spark_ckpt.plan.analysed.ledger import LEDGER, How, written_table
from spark_ckpt.plan.analysed.ledger_of_expressions import expressions_table

pytestmark = pytest.mark.smoke  # a new PySpark has new methods
PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()


def unmade(cls: type, **attributes: Any) -> Any:
    """An object of ``cls`` that no session was needed for: it is asked for attributes only."""
    made = cls.__new__(cls)
    vars(made).update(attributes)
    return made


OURS = {
    DataStreamReader: unmade(spark_ckpt.CkptDataStreamReader),
    DataStreamWriter: unmade(spark_ckpt.CkptDataStreamWriter),
    StreamingQuery: unmade(spark_ckpt.CkptQuery, _query=StreamingQuery.__new__(StreamingQuery)),
    StreamingQueryManager: unmade(CkptStreams, _streams=StreamingQueryManager.__new__(StreamingQueryManager)),
}
REFUSED = {DataStreamReader: {"changes"} if pyspark.__version__ >= "4.2" else set(), DataStreamWriter: {"clusterBy"}}


def methods(cls: type) -> set[str]:
    """The public methods of PySpark's ``cls`` that are not refused here."""
    return {name for name in dir(cls) if not name.startswith("_")} - REFUSED.get(cls, set())


def test_the_page_shows_what_becomes_of_each_operation() -> None:
    assert written_table() in PAGE, "docs/methods.md is stale: run scripts/config_docs.py"
    assert not [entry.nodes for entry in LEDGER if entry.how is not How.ABSENT and not entry.written]


def test_the_page_is_short() -> None:
    around = PAGE.replace(written_table(), "").replace(expressions_table(), "")
    assert len(around.split()) <= 1500


@pytest.mark.parametrize("cls", OURS, ids=lambda c: c.__name__)
def test_every_method_of_pyspark_is_there(cls: type) -> None:
    ours = OURS[cls]
    passed_on = dir(cls) if cls in (StreamingQuery, StreamingQueryManager) else ()
    assert methods(cls) - {*dir(type(ours)), *passed_on} == set()


@pytest.mark.parametrize(("cls", "name"), [(cls, name) for cls, names in REFUSED.items() for name in sorted(names)])
def test_what_is_refused_names_another_way_and_stands_on_the_page(cls: type, name: str) -> None:
    with pytest.raises((AttributeError, spark_ckpt.CkptError)) as refused:
        getattr(OURS[cls], name)(None)
    assert name in str(refused.value)
    assert len(str(refused.value)) > 50
    assert f"{name}`" in PAGE


def test_methods_that_enable_adds_are_not_pysparks() -> None:
    """A method of that name in a later PySpark would be hidden by ours."""
    added = {DataFrame: ("uid",), GroupedData: ("topN", "aggregate", "applyInArrowWithState")}
    of_pyspark = [
        (cls.__name__, name)
        for cls, names in added.items()
        for name in names
        if getattr(getattr(cls, name, None), "__module__", "spark_ckpt").startswith("pyspark")
    ]
    assert of_pyspark == []
