"""The page of PySpark's methods: none is left out, and what it says of each is so."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery, StreamingQueryManager

import spark_ckpt
from spark_ckpt.api._other_ways import WAYS
from spark_ckpt.api._progress import CkptStreams
from spark_ckpt.types import CONTROL_COLUMNS

pytestmark = pytest.mark.smoke  # a new PySpark has new methods
PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
SECTION = re.compile(r"^<!-- class: (\w+) -->\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| (yes|else|no) \| ", re.MULTILINE)
NEWER = re.compile(r"^\| `(\w+)` \| else \| PySpark (\d\.\d) has it", re.MULTILINE)
NOT_YET = {name for name, since in NEWER.findall(PAGE) if since > pyspark.__version__[: len(since)]}
"""Methods that a later PySpark than this one has."""


def unmade(cls: type, **attributes: Any) -> Any:
    """An object of ``cls`` that no session was needed for: it is asked for attributes only."""
    made = cls.__new__(cls)
    vars(made).update(attributes)
    return made


OURS = {
    DataStreamReader: unmade(spark_ckpt.CkptDataStreamReader),
    DataFrame: unmade(spark_ckpt.CkptDataFrame, _preview=SimpleNamespace(columns=["v", *CONTROL_COLUMNS])),
    GroupedData: unmade(spark_ckpt.CkptGroupedData),
    DataStreamWriter: unmade(spark_ckpt.CkptDataStreamWriter),
    StreamingQuery: unmade(spark_ckpt.CkptQuery, _query=StreamingQuery.__new__(StreamingQuery)),
    StreamingQueryManager: unmade(CkptStreams, _streams=StreamingQueryManager.__new__(StreamingQueryManager)),
}


def told() -> dict[str, dict[str, str]]:
    """PySpark's class -> method -> what the page says."""
    found: dict[str, dict[str, str]] = {}
    for cls, text in SECTION.findall(PAGE):
        for names, here in ROW.findall(text):
            for name in re.findall(r"\w+", names):
                assert name not in found.setdefault(cls, {}), f"{cls}.{name} is there twice"
                found[cls][name] = here
    return found


TOLD = told()


@pytest.mark.parametrize("cls", OURS, ids=lambda c: c.__name__)
def test_the_page_names_every_method_of_pyspark_and_no_other(cls: type) -> None:
    named, there = set(TOLD[cls.__name__]), {n for n in dir(cls) if not n.startswith("_")}
    assert sorted(there - named) == [], "PySpark has these, docs/methods.md does not name them"
    assert sorted(named - there - NOT_YET) == [], "docs/methods.md names these, PySpark has none of them"


def test_every_row_of_the_tables_is_read() -> None:
    tables = "".join(text for _, text in SECTION.findall(PAGE))
    rows = [line for line in tables.splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROW.findall(tables)) > 50


@pytest.mark.parametrize("cls", OURS, ids=lambda c: c.__name__)
def test_what_the_page_says_yes_to_is_there(cls: type) -> None:
    ours = OURS[cls]
    there = {*dir(type(ours)), *(dir(cls) if cls in (StreamingQuery, StreamingQueryManager) else ())}
    assert sorted(n for n, here in TOLD[cls.__name__].items() if here == "yes" and n not in there) == []


@pytest.mark.parametrize("cls", OURS, ids=lambda c: c.__name__)
def test_what_the_page_says_no_to_is_refused_with_a_hint(cls: type) -> None:
    for name, here in TOLD[cls.__name__].items():
        if here == "yes":
            continue
        # Spark's own errors of what needs all rows, with what to do instead.
        errors = (AttributeError, spark_ckpt.CkptError, AnalysisException, AssertionError)
        with pytest.raises(errors) as refused:
            getattr(OURS[cls], name)(None)
        text = str(refused.value)
        assert name in text, text
        assert len(text) > 50, f"{cls.__name__}.{name} says too little: {text}"


def test_other_ways_are_told_for_methods_that_spark_has_and_the_page_does_not_say_yes_to() -> None:
    here = TOLD["DataFrame"]
    assert (
        sorted(name for name in WAYS if not (hasattr(DataFrame, name) or name in NOT_YET) or here[name] == "yes") == []
    )
