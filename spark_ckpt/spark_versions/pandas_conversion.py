"""Arrow to pandas and back as PySpark converts the arguments and results of a user's function.

PySpark 4.2 has both as pure functions (``pyspark.sql.conversion``). Before, they are methods of the serializers of its
Python workers, whose constructors and arguments differ between 4.0 and 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_ckpt.spark_versions import spark_version
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_type

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(batch: pa.RecordBatch, timezone: str, prefer_int_ext_dtype: bool = False) -> list[Any]:
    """A series for each column. ``prefer_int_ext_dtype``: of Spark 4.2 and later."""
    if spark_version() < (4, 2):
        return _to_pandas_before(batch, timezone)
    from pyspark.sql.conversion import ArrowBatchTransformer

    found: list[Any] = ArrowBatchTransformer.to_pandas(
        batch, timezone=timezone, prefer_int_ext_dtype=prefer_int_ext_dtype
    )
    return found


def to_frame(batch: pa.RecordBatch, timezone: str, prefer_int_ext_dtype: bool = False) -> pd.DataFrame:
    """All columns as one struct, as Spark sends them: which conversion a column gets depends on the others."""
    import pandas as pd

    if spark_version() < (4, 2):
        return pd.concat(_to_pandas_before(batch, timezone), axis=1)
    from pyspark.sql.conversion import ArrowBatchTransformer

    return ArrowBatchTransformer.to_pandas(
        ArrowBatchTransformer.wrap_struct(batch),
        timezone=timezone,
        prefer_int_ext_dtype=prefer_int_ext_dtype,
        df_for_struct=True,
    )[0]


def to_arrow(
    data: pd.DataFrame | Sequence[pd.Series],
    schema: StructType,
    timezone: str,
    safecheck: bool = True,
    arrow_cast: bool = False,
    assign_cols_by_name: bool = False,
    int_to_decimal_coercion_enabled: bool = False,
) -> pa.RecordBatch:
    """A batch of ``schema``. ``int_to_decimal_coercion_enabled``: of Spark 4.1 and later."""
    if spark_version() < (4, 2):
        columns = _columns(data, schema, assign_cols_by_name)
        maker = _serializer(timezone, safecheck, int_to_decimal_coercion_enabled)
        kinds = [to_arrow_type(field.dataType) for field in schema]
        made = [
            maker._create_array(column, kind, spark_type=field.dataType, arrow_cast=arrow_cast)
            for column, kind, field in zip(columns, kinds, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(made, schema.names)
    from pyspark.sql.conversion import PandasToArrowConversion

    return PandasToArrowConversion.convert(
        data,
        schema,
        timezone=timezone,
        safecheck=safecheck,
        arrow_cast=arrow_cast,
        assign_cols_by_name=assign_cols_by_name,
        int_to_decimal_coercion_enabled=int_to_decimal_coercion_enabled,
    )


def _columns(data: pd.DataFrame | Sequence[pd.Series], schema: StructType, by_name: bool) -> list[pd.Series]:
    import pandas as pd  # not by every process that imports this: it takes a while

    if not isinstance(data, pd.DataFrame):
        return list(data)
    if by_name and any(isinstance(c, str) for c in data.columns):
        data = data[schema.names]
    return [data.iloc[:, at] for at in range(len(schema.fields))]


def _to_pandas_before(batch: pa.RecordBatch, timezone: str) -> list[pd.Series]:
    maker = _serializer(timezone, False, False)
    numbered = spark_version() >= (4, 1)
    return [
        maker.arrow_to_pandas(column, *([at] if numbered else [])).rename(name)
        for at, (column, name) in enumerate(zip(batch.columns, batch.schema.names, strict=True))
    ]


def _serializer(timezone: str, safecheck: bool, int_to_decimal: bool) -> Any:
    from pyspark.sql.pandas.serializers import ArrowStreamPandasSerializer

    return ArrowStreamPandasSerializer(timezone, safecheck, *([int_to_decimal] if spark_version() >= (4, 1) else []))
