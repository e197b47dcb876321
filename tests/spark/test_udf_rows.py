"""A user's Python function is called for data rows only, and Spark's own checks of what it returns still hold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import types as T

from spark_ckpt.runtime.udf_rows import DataRowsOnly
from spark_ckpt.spark_versions import eval_types as Kind

LONG, STRUCT = T.LongType(), T.StructType([T.StructField("a", T.LongType()), T.StructField("b", T.StringType())])


def sent(func: Any, kind: int, returns: T.DataType = LONG, *inner: Any) -> Any:
    """The function as a worker has it."""
    serializer = CloudPickleSerializer()
    commands = tuple(serializer.dumps((f, LONG)) for f in (*inner, func))
    return serializer.loads(serializer.dumps(DataRowsOnly(commands, kind, returns)))


def test_a_row_function_is_called_for_data_rows_with_its_own_arguments() -> None:
    func = sent(lambda v, *, by: v + by, Kind.SQL_BATCHED_UDF)
    assert [func(False, 1, by=2), func(True, None, by=None), func(False, 3, by=4)] == [3, None, 7]
    assert [sent(lambda: 7, Kind.SQL_BATCHED_UDF)(control) for control in (False, True)] == [7, None]


def test_a_function_that_feeds_another_is_called_first() -> None:
    func = sent(lambda v: v * 10, Kind.SQL_BATCHED_UDF, LONG, lambda a, b: a + b)
    assert [func(False, 1, 2), func(True, None, None)] == [30, None]


@pytest.mark.parametrize("kind", [Kind.SQL_SCALAR_PANDAS_UDF, Kind.SQL_SCALAR_ARROW_UDF])
def test_columns_come_without_control_rows_and_results_go_where_they_belong(kind: int) -> None:
    def double(v: Any) -> Any:
        assert v.dtype == "int64" if kind == Kind.SQL_SCALAR_PANDAS_UDF else not v.null_count
        return v * 2 if kind == Kind.SQL_SCALAR_PANDAS_UDF else pa.array([2 * x for x in v.to_pylist()])

    func = sent(double, kind)
    for control in ([], [0], [1], [0, 0], [0, 1, 0], [1, 0, 1, 1], [1, 1]):
        values = [2**53 + 1 + i for i in range(len(control))]
        found = func(*_columns(kind, control, values))
        assert len(found) == len(control)
        listed = found.tolist() if kind == Kind.SQL_SCALAR_PANDAS_UDF else found.to_pylist()
        assert [x for x, c in zip(listed, control, strict=True) if not c] == [
            2 * v for v, c in zip(values, control, strict=True) if not c
        ]


def _columns(kind: int, control: list[int], values: list[int]) -> tuple[Any, Any]:
    if kind in (Kind.SQL_SCALAR_PANDAS_UDF, Kind.SQL_SCALAR_PANDAS_ITER_UDF):
        return pd.Series(control, dtype=bool), pd.Series(values, dtype="int64")
    null_in_control = pa.array(values, pa.int64(), mask=pd.Series(control, dtype=bool).to_numpy())
    return pa.array([bool(c) for c in control], pa.bool_()), null_in_control


def test_a_struct_is_a_frame_with_and_without_data_rows() -> None:
    def frame(v: pd.Series) -> pd.DataFrame:
        return pd.DataFrame({"a": v, "b": v.astype(str)})

    func = sent(frame, Kind.SQL_SCALAR_PANDAS_UDF, STRUCT)
    mixed = func(pd.Series([True, False, True]), pd.Series([0, 5, 0]))
    assert (mixed["a"].tolist()[1], mixed["a"].dtype, len(mixed)) == (5, "int64", 3)
    none = func(pd.Series([True, True]), pd.Series([0, 0]))
    assert (list(none.columns), none["a"].tolist()) == (["a", "b"], [None, None])


def test_what_is_wrong_with_a_result_is_told_as_spark_does() -> None:
    func = sent(lambda v: pd.Series([1] * (len(v) + 1)), Kind.SQL_SCALAR_PANDAS_UDF)
    with pytest.raises(PySparkRuntimeError, match=r"2, got 3|output.*3.*input.*2|3.*2"):
        func(pd.Series([False, True, False]), pd.Series([1, 0, 2]))  # as many as rows, control rows included
    assert sent(lambda _: 5, Kind.SQL_SCALAR_PANDAS_UDF)(pd.Series([False, True]), pd.Series([1, 0])) == 5


ITERATORS = [Kind.SQL_SCALAR_PANDAS_ITER_UDF, Kind.SQL_SCALAR_ARROW_ITER_UDF]


def _list(column: Any) -> list[Any]:
    return list(column.tolist() if isinstance(column, pd.Series) else column.to_pylist())


@pytest.mark.parametrize("kind", ITERATORS)
def test_an_iterator_may_answer_in_other_batches_and_every_row_gets_its_own_result(kind: int) -> None:
    rng = random.Random(4)

    def anyhow(batches: Iterator[Any]) -> Iterator[Any]:
        kept: list[int] = []
        for batch in batches:
            assert len(batch), "never an empty batch because of control rows"
            kept += _list(batch)
            while kept and rng.random() < 0.6:
                size = rng.randint(0, len(kept))
                answer, kept = kept[:size], kept[size:]
                answer = [v * 2 for v in answer]
                yield pd.Series(answer, dtype="int64") if kind == ITERATORS[0] else pa.array(answer, pa.int64())
        answer = [v * 2 for v in kept]
        yield pd.Series(answer, dtype="int64") if kind == ITERATORS[0] else pa.array(answer, pa.int64())

    func = sent(lambda batches: anyhow(batches), kind)
    for _ in range(200):
        batches = [[int(rng.random() < 0.4) for _ in range(rng.randint(1, 5))] for _ in range(rng.randint(0, 5))]
        values = [[rng.randint(1, 9) for _ in batch] for batch in batches]
        columns = [_columns(kind, c, v) for c, v in zip(batches, values, strict=True)]
        found = [x for result in func(iter(columns)) for x in _list(result)]
        flags, flat = [c for b in batches for c in b], [v for b in values for v in b]
        assert len(found) == len(flat)
        assert [f for f, c in zip(found, flags, strict=True) if not c] == [
            2 * v for v, c in zip(flat, flags, strict=True) if not c
        ]


@pytest.mark.parametrize(
    ("func", "error"),
    [
        (lambda batches: (b[:-1] for b in batches), "RESULT_ROWS_MISMATCH"),
        (lambda batches: (pd.concat([b, b]) for b in batches), "OUTPUT_EXCEEDS_INPUT_ROWS"),
        (lambda batches: iter([next(batches)]), "INPUT_NOT_FULLY_CONSUMED"),
        (lambda _: 5, "UDF_RETURN_TYPE"),
    ],
)
def test_an_iterator_that_answers_too_little_or_too_much_is_refused(func: Any, error: str) -> None:
    batches = [_columns(ITERATORS[0], [0, 1, 0], [1, 0, 2]), _columns(ITERATORS[0], [0, 0], [3, 4])]
    with pytest.raises((PySparkRuntimeError, PySparkTypeError)) as refused:
        list(sent(func, ITERATORS[0])(iter(batches)))
    assert refused.value.getCondition() == error


def test_control_rows_alone_call_nothing() -> None:
    def fails(_: Any) -> Any:
        raise AssertionError("called")

    for kind in ITERATORS:
        found = list(sent(fails, kind)(iter([_columns(kind, [1, 1], [0, 0]), _columns(kind, [1], [0])])))
        assert [len(f) for f in found] == [3]
    assert sent(fails, Kind.SQL_BATCHED_UDF)(True, 1) is None
