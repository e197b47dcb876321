"""The checkpoint history as people get it."""

from __future__ import annotations

from typing import Any

from spark_ckpt import shown


class Checkpoints(list[dict[str, Any]]):
    """A dict for each checkpoint, oldest first, as :meth:`spark_ckpt.Job.checkpoints` says. A notebook shows it as a
    table with plots."""

    def pandas(self) -> Any:
        """A pandas DataFrame with a row each and ``id`` as its index; ``triggered`` and ``completed`` are instants in
        UTC beside the milliseconds."""
        import pandas as pd

        found = pd.DataFrame(list(self))
        if found.empty:
            return found
        for name in ("triggered", "completed"):
            found[name] = pd.to_datetime(found[f"{name}_ms"], unit="ms", utc=True)
        return found.set_index("id")

    def _repr_html_(self) -> str | None:
        return shown.html("checkpoints", self)
