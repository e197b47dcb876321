"""What a savepoint is made of: rows of DataFrames, tables of other savepoints, positions of sources. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_ckpt.api.state import CkptState
from spark_ckpt.config_values import option_text
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.lineage import SourceNode
from spark_ckpt.execution.state_bootstrap import Bootstrap
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.sources.base import open_source
from spark_ckpt.storage.job_paths import JobPaths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ckpt.config import JobConfig


@dataclass(frozen=True)
class StateRows:
    """A table that is written anew."""

    rows: Any

    def frame(self, _spark: Any) -> DataFrame:
        found: DataFrame = self.rows
        return found


@dataclass(frozen=True)
class Kept:
    """A table of another savepoint, as it is."""

    savepoint: Savepoint
    table: str

    def frame(self, spark: Any) -> DataFrame:
        return CkptState.of(self.savepoint.state(self.table), spark).df()


@dataclass(frozen=True)
class Bootstrapped:
    """A table of an operator whose state is computed of rows."""

    made: Bootstrap

    def frame(self, _spark: Any) -> DataFrame:
        raise InvalidInputError(
            f"the state of {self.made.uid!r} is computed by bootstrap when the savepoint is written: change it in a "
            "savepoint_writer of that savepoint"
        )


Rows = StateRows | Kept | Bootstrapped


def positions(
    node: SourceNode, config: JobConfig, uid: str, offset: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Callable[[str], Mapping[str, Any]]:
    """The offset of a source, to be made for a savepoint at a path, where the source may keep files. Options are
    checked here."""
    if offset is not None:
        inner = offset.get("inner", offset)
        return lambda _: dict(inner)
    files = options.get("files")
    told = {} if files is not None else {name: option_text(value) for name, value in options.items()}
    kept = {name: value for name, value in node.options.items() if not (told and name.lower().startswith("starting"))}
    given = {**kept, **told}

    def opened(url: str) -> Any:
        return open_source(node.inner, given, node.schema, JobPaths(url).source(uid), config.storage_options())

    def made(path: str) -> Mapping[str, Any]:
        reader = opened(path).reader(node.schema)
        return dict(reader.starting_from("none") if files is None else reader.behind_files(files))

    opened(f"{config.dir}/_none")
    return made
