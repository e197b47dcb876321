"""The trigger ``availableNow`` for Spark before 4.2. The user's process.

There Spark makes one batch of what a Python source has at the start, and a final checkpoint needs several: its barrier
comes behind the last row. So the query runs without a trigger over sources that end with what is there (``bounded`` of
the run), and is stopped here as soon as Spark found nothing new. Rows that come later are beyond the sources' end, so
what is idle stays idle.
"""

from __future__ import annotations

import threading
from typing import Any

from spark_ckpt.spark_versions import spark_version

ENDED_BY_US = spark_version() < (4, 2)
_POLL_S = 0.05
_IDLE = "Waiting for data to arrive"
"""Of ``StreamingQuery.status``: Spark asked all sources, and none has more."""


def end_when_idle(query: Any) -> None:
    """Stop ``query`` when all its sources have ended. Returns at once."""
    threading.Thread(target=_end, args=(query,), name=f"available-now-{query.id}", daemon=True).start()


def _end(query: Any) -> None:
    while not query.awaitTermination(_POLL_S):
        if query.status["message"] == _IDLE:
            query.stop()
