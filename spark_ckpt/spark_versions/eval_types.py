"""The kinds of Python functions (``PythonEvalType``), with those that came after Spark 4.0.

Their numbers are part of Spark's protocol with its Python workers and do not change. No plan of an older Spark has a
newer kind, so nothing needs to ask for the version.
"""

from __future__ import annotations

from pyspark.util import PythonEvalType as _Known

SQL_BATCHED_UDF = int(_Known.SQL_BATCHED_UDF)
SQL_ARROW_BATCHED_UDF = int(_Known.SQL_ARROW_BATCHED_UDF)
SQL_SCALAR_PANDAS_UDF = int(_Known.SQL_SCALAR_PANDAS_UDF)
SQL_SCALAR_PANDAS_ITER_UDF = int(_Known.SQL_SCALAR_PANDAS_ITER_UDF)
SQL_MAP_ARROW_ITER_UDF = int(_Known.SQL_MAP_ARROW_ITER_UDF)
SQL_GROUPED_MAP_PANDAS_UDF = int(_Known.SQL_GROUPED_MAP_PANDAS_UDF)
SQL_GROUPED_MAP_ARROW_UDF = int(_Known.SQL_GROUPED_MAP_ARROW_UDF)
SQL_COGROUPED_MAP_PANDAS_UDF = int(_Known.SQL_COGROUPED_MAP_PANDAS_UDF)
SQL_TRANSFORM_WITH_STATE_PANDAS_UDF = int(_Known.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF)
SQL_TRANSFORM_WITH_STATE_PANDAS_INIT_STATE_UDF = int(_Known.SQL_TRANSFORM_WITH_STATE_PANDAS_INIT_STATE_UDF)

# Since 4.1
SQL_GROUPED_MAP_ARROW_ITER_UDF = 215
SQL_GROUPED_MAP_PANDAS_ITER_UDF = 216
SQL_SCALAR_ARROW_UDF = 250
SQL_SCALAR_ARROW_ITER_UDF = 251
