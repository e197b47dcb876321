"""Rows that a function puts out with an event time of its own choosing: they may not be late where they go to."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import UserFunctionError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def refuse_old_rows(uid: str, output: pa.Table, column: str, late_us: int) -> None:
    """Raises ``UserFunctionError`` if a row's time is not behind the watermark that tells late rows."""
    earliest = pc.min(output.column(column).cast(pa.timestamp("us", "UTC")).cast(pa.int64())).as_py()
    if earliest is not None and earliest <= late_us:
        raise UserFunctionError(
            f"{uid}: [EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED] Previous node emitted a row with eventTime="
            f"{_shown(earliest)} which is older than current_watermark_value={_shown(late_us)}. This can lead to "
            "correctness issues in the stateful operators downstream in the execution pipeline. Please correct the "
            f"operator logic to emit rows after current global watermark value, in the column {column!r}."
        )


def _shown(micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).isoformat()
