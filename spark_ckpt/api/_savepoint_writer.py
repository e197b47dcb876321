"""``ckpt.savepoint_writer(df)``: a savepoint that is made of DataFrames. Driver; the work is that of executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.api._written_state import Bootstrapped, Kept, Rows, StateRows, positions
from spark_ckpt.config_values import parse_duration_ms
from spark_ckpt.errors import InvalidInputError, ProtocolBugError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.rewriting import merged_watermarks
from spark_ckpt.execution.same_rows import rehash_state_table
from spark_ckpt.execution.start import StartRequest, query_state
from spark_ckpt.execution.state_bootstrap import Bootstrap
from spark_ckpt.execution.state_writing import Written, check_columns, columns_of, write_state_table
from spark_ckpt.hints import Hinting
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.jobs.savepoint_draft import Draft
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.protocol.records import Topology
from spark_ckpt.protocol.source_offset import SourcePosition
from spark_ckpt.runtime.state_writing import WrittenTable
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.storage.manifest import read_manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEW = "written"
"""What the job of a savepoint is called that came from none."""


class SavepointWriter(Hinting):
    """Makes a savepoint for a query: of DataFrames, and of another savepoint, which stays as it is.

    Every method but :meth:`write` returns the writer; nothing is written before :meth:`write`. A table is named as
    ``ckpt.state`` names it: an operator's uid, or ``"visits.users"`` for many rows a key and variables of processors.
    Rows are batch DataFrames, Arrow tables or pandas DataFrames with the columns that ``ckpt.state(table).df()`` shows.
    What does not fit raises ``InvalidInputError``.
    """

    def __init__(self, spark: Any, request: StartRequest, source: Savepoint | None) -> None:
        self.spark, self._request, self._source = spark, request, source
        self.query = query = query_state(request)
        self._record = None if source is None else source.record()
        self._forms = {table: form for of in query.tables.values() for table, form in of.items()}
        there = {} if self._record is None else self._record.tables
        self._tables: dict[str, Rows] = {table: Kept(source, table) for table in there if source}
        self._offsets = {} if self._record is None else dict(self._record.sources)
        self._given_offsets: dict[str, Callable[[str], Mapping[str, Any]]] = {}
        self._others: list[Savepoint] = []
        self._seen: dict[str, Mapping[str, int]] = {}
        self._said: list[list[str]] = []

    # -- tables ----------------------------------------------------------------------------------------------------

    def with_operator(self, uid: str, rows: Any) -> SavepointWriter:
        """All rows of the table ``uid``: a DataFrame, or a function that makes it of the DataFrame of the old rows, or
        None for no rows."""
        self._form(uid)
        if callable(rows):
            rows = rows(self._rows(uid))
        return self._put("with_operator", uid, self._no_rows(uid) if rows is None else rows)

    def bootstrap(
        self, uid: str, rows: Any, orderBy: str | Sequence[str] = (), every: str | None = None
    ) -> SavepointWriter:
        """The state of the operator ``uid``, computed of rows that its source would have read, as after a stream of
        them: by the query's own filters and columns in front of the operator, and the operator's own function.

        ``rows``: a batch DataFrame with the source's columns, or one for each source, by uid. ``orderBy``: columns that
        the operator gets, by which the rows of a key come; else in any order. What comes out is written nowhere, and
        time-outs that are behind the last row's watermark have fired. Executors keep a portion of rows in memory.

        Functions with event-time time-outs or timers get the rows of a key in the order of their event times, and a
        time-out that is due ahead of a row fires ahead of it. ``every``, as ``"10 minutes"``: rows of so much event
        time are one call, which is faster; time-outs between them fire behind the call.
        """
        if uid not in self.query.nodes:
            raise InvalidInputError(f"bootstrap({uid!r}): expected an operator's uid, of {sorted(self.query.nodes)}")
        sources = [s for s, node in self.query.sources.items() if node in self.query.nodes[uid].upstream]
        by_source = dict(rows) if isinstance(rows, Mapping) else dict.fromkeys(sources[:1], rows)
        order = [orderBy] if isinstance(orderBy, str) else list(orderBy)
        made = Bootstrap(self._request, self.query, uid, by_source, order, _every_ms(uid, every)).checked()
        for table in self.query.tables[uid]:
            self._tables[table] = Bootstrapped(made)
        self._said.append(["bootstrap", uid, *order, *([] if every is None else [f"every {every}"])])
        return self

    def patch(self, uid: str, rows: Any) -> SavepointWriter:
        """``rows`` take the place of those with the same key; other rows stay."""
        new = self._frame(uid, rows)
        return self._put("patch", uid, _without(self._rows(uid), new, self._form(uid).keys).unionByName(new))

    def delete(self, uid: str, keys: Any) -> SavepointWriter:
        """Rows with these keys go: of an operator also those in its other tables. ``keys`` has the operator's key
        columns, or those by which the rows of the one table ``uid`` are told apart."""
        found = self._any_frame(keys)
        owner, names = self._owner(uid), set(found.columns)
        if uid == owner and names == set(self._forms[owner].keys):
            tables = [t for t in self.query.tables[owner] if t in self._tables]
        elif names in (set(self._form(uid).keys), set(self._forms[owner].keys)):
            tables = [uid]
        else:
            raise InvalidInputError(
                f"delete({uid!r}): expected the key columns {self._form(uid).keys}, found {sorted(names)}"
            )
        for table in tables:
            self._put("delete", table, _without(self._rows(table), found, sorted(names)))
        return self

    def split(self, uid: str, keep: str | Column) -> SavepointWriter:
        """Only keys of the operator ``uid`` for which ``keep``, an expression over its key columns, is true stay, in
        all of its tables."""
        owner = self._owner(uid)
        if uid != owner:
            raise InvalidInputError(f"split({uid!r}): expected an operator's uid, {owner!r}; all its tables are split")
        keys = self._forms[owner].keys
        # Not a projection: in front of one, Spark finds other columns for a filter.
        only = StructType([f for f in columns_of(self._forms[owner]) if f.name in keys])
        try:
            self.spark.createDataFrame([], only).where(keep)
        except AnalysisException as error:
            raise InvalidInputError(
                f"split({uid!r}): expected a condition over the key columns {list(keys)}, found one that Spark "
                f"refuses: {str(error).splitlines()[0]}"
            ) from None
        for table in [t for t in self.query.tables[owner] if t in self._tables]:
            self._put("split", table, self._rows(table).where(keep))
        return self

    def remove_operator(self, uid: str) -> SavepointWriter:
        """The operator ``uid`` and its tables are not in the savepoint."""
        gone = [table for table in self._tables if table == uid or table.startswith(f"{uid}.")]
        if not gone:
            raise InvalidInputError(f"remove_operator({uid!r}): expected one of {sorted(self._tables)}")
        for table in gone:
            del self._tables[table]
        self._said.append(["remove_operator", uid])
        return self

    def merge(self, savepoint: Savepoint | str) -> SavepointWriter:
        """The rows of another savepoint of the same operators come to those that are here. A key that both have is an
        error of :meth:`write`."""
        other = savepoint if isinstance(savepoint, Savepoint) else Savepoint(savepoint, self.query.config)
        record = other.record()
        unknown = sorted(set(record.tables) - set(self._forms))
        if unknown:
            raise InvalidInputError(f"merge: {other!r} has state of {unknown}, expected that of {sorted(self._forms)}")
        for table in record.tables:
            theirs = Kept(other, table)
            here = self._tables.get(table)
            rows = theirs.frame(self.spark)
            self._put("merge", table, rows if here is None else here.frame(self.spark).unionByName(rows))
        self._others.append(other)
        return self

    # -- sources ---------------------------------------------------------------------------------------------------

    def with_offsets(self, source: str, offset: Mapping[str, Any] | None = None, **options: Any) -> SavepointWriter:
        """Where the source ``source`` goes on. By its own options, as a fresh job would begin with them
        (``startingOffsets='{"orders": {"0": 42}}'``), of files by those that are read (``files=history.inputFiles()``),
        or by an offset as ``savepoint.describe()["sources"]`` has it.
        A source without an offset begins where it does in a fresh job."""
        node = self.query.sources.get(source)
        if node is None:
            raise InvalidInputError(f"with_offsets({source!r}): expected one of {sorted(self.query.sources)}")
        if (offset is None) == (not options):
            raise InvalidInputError(f"with_offsets({source!r}): expected an offset, or options of the source")
        self._given_offsets[source] = positions(node, self.query.config, source, offset, options)
        self._said.append(["with_offsets", source, str(offset), str(sorted(options.items()))])
        return self

    def seen_by(self, uid: str, watermarks_us: Mapping[str, int]) -> None:
        """The event time that the operator ``uid`` has seen, in the words of manifests. For an import."""
        self._seen[uid] = watermarks_us

    # -- write -----------------------------------------------------------------------------------------------------

    def write(self, path: str) -> Savepoint:
        """Make the savepoint in the empty folder ``path`` (or URL). Costs what is written, and copies of the tables
        that are kept. Stopped on the way, ``path`` is no savepoint, and the same calls go on with it. Raises
        ``InvalidInputError`` if the folder is not free, two rows have one key, or tables or offsets are missing, and
        ``ProtocolBugError`` if a table that is hashed anew has not the rows that it had."""
        self._check_whole()
        target = Savepoint(path, self.query.config)
        draft = Draft(target, self._job(), self._source, {"steps": self._said, "for": self._topology().to_json()})
        draft.begin()
        try:
            for table, rows in self._tables.items():
                if not isinstance(rows, Bootstrapped):
                    self._write_table(draft, table, rows)
            made = {rows.made.uid: rows.made for rows in self._tables.values() if isinstance(rows, Bootstrapped)}
            for bootstrap in made.values():
                self._bootstrap(draft, bootstrap)
            self._finish(draft)
        except (InvalidInputError, ProtocolBugError):
            draft.give_up()
            raise
        return target

    def _write_table(self, draft: Draft, table: str, rows: Rows) -> None:
        if isinstance(rows, Kept) and self._stays(table):
            draft.keep(table)
        else:
            write = rehash_state_table if isinstance(rows, Kept) else write_state_table
            written = write(rows.frame(self.spark), self._to_write(draft, table))
            self._put_table(draft, table, written, self._watermarks(table))

    def _bootstrap(self, draft: Draft, made: Bootstrap) -> None:
        written, seen = made.write({table: self._to_write(draft, table) for table in self.query.tables[made.uid]})
        for table, rows in written.items():
            # What an operator has seen of the time is told with its own state.
            self._put_table(draft, table, rows, seen if table == made.uid else {})

    def _to_write(self, draft: Draft, table: str) -> WrittenTable:
        folder, storage = draft.folder(table), self.query.config.storage_options()
        return WrittenTable(table, folder.url, self._form(table), draft.checkpoint, storage, folder.retry)

    def _put_table(self, draft: Draft, table: str, written: Written, seen: Mapping[str, int]) -> None:
        groups = {number: GroupManifest(g.runs, g.keys, seen) for number, g in written.groups.items()}
        draft.put(table, self._form(table).layout.table_schema, written.content, groups)

    def _finish(self, draft: Draft) -> None:
        offsets = dict(self._offsets)
        if self._source is not None:
            draft.keep_sources([uid for uid in offsets if uid not in self._given_offsets])
        for uid, position in self._given_offsets.items():
            offsets[uid] = SourcePosition(position(draft.target.path)).to_json()
        draft.finish(self._topology(tuple(offsets)), offsets)

    def _check_whole(self) -> None:
        """An operator's tables belong together. That of a processor has no columns and no rows."""
        for uid, tables in self.query.tables.items():
            if uid not in self._tables and not len(tables[uid].layout.value_schema) and set(tables) & set(self._tables):
                self._put("with_operator", uid, self._no_rows(uid))
            missing = [t for t in tables if t not in self._tables]
            if missing and len(missing) < len(tables):
                raise InvalidInputError(
                    f"operator {uid!r} keeps its state in {list(tables)}: expected all of them, missing {missing}; "
                    f"give their rows, or none: `.with_operator({missing[0]!r}, None)`"
                )
        for other in self._others:
            self._check_offsets(other)

    def _check_offsets(self, other: Savepoint) -> None:
        for uid, position in other.record().sources.items():
            if uid not in self._given_offsets and self._offsets.get(uid) != position:
                raise InvalidInputError(
                    f"merge: source {uid!r} stands at another offset in {other!r}, or nowhere: say where it goes on, "
                    f"`.with_offsets({uid!r}, ...)`"
                )

    def _topology(self, sources: tuple[str, ...] = ()) -> Topology:
        """That of the query where tables are written, and that of the old savepoint where they are kept."""
        of = self.query.topology
        old = {} if self._record is None else self._record.topology.operators
        operators = {
            table: old[table] if isinstance(rows, Kept) and self._stays(table) else of.operators[table]
            for table, rows in self._tables.items()
        }
        return replace(
            of,
            operators=operators,
            sources=sources,
            sinks=(),
            in_plan=tuple(uid for uid in of.in_plan if uid in operators),
            derived_sources=tuple(uid for uid in of.derived_sources if uid in sources),
        )

    def _stays(self, table: str) -> bool:
        """Whether a table that is kept can be copied: its key groups are those of the query."""
        assert self._record is not None
        same = self._record.topology.key_groups == self.query.topology.key_groups
        if not same:
            self._form(table)
        return same

    def _watermarks(self, table: str) -> dict[str, int]:
        """The event time that the rows of the table have seen."""
        if table in self._seen:
            return dict(self._seen[table])
        records = [s for s in (self._source, *self._others) if s is not None and table in s.record().tables]
        manifests = [read_manifest(s.store, s.record().tables[table].manifest) for s in records]
        return merged_watermarks([g.watermarks_us for m in manifests for g in m.groups.values()])

    def _job(self) -> str:
        return NEW if self._source is None else str(self._source.summary()["job"])

    # -- rows --------------------------------------------------------------------------------------------------------

    def _put(self, step: str, table: str, rows: Any) -> SavepointWriter:
        self._tables[table] = StateRows(self._frame(table, rows))
        self._said.append([step, table])
        return self

    def _rows(self, table: str) -> DataFrame:
        """As they are so far."""
        found = self._tables.get(table)
        if found is not None:
            return found.frame(self.spark)
        return self._no_rows(table)

    def _no_rows(self, table: str) -> DataFrame:
        return self.spark.createDataFrame([], columns_of(self._form(table)))

    def _frame(self, table: str, rows: Any) -> DataFrame:
        found = self._any_frame(rows, columns_of(self._form(table)))
        check_columns(table, found.schema, self._form(table))
        return found

    def _any_frame(self, rows: Any, schema: Any = None) -> DataFrame:
        if isinstance(rows, pa.Table):
            rows = self.spark.createDataFrame(rows)
        elif not hasattr(rows, "isStreaming"):
            if not hasattr(rows, "columns"):
                raise InvalidInputError(
                    f"expected rows as a DataFrame, an Arrow table or a pandas DataFrame, found {type(rows).__name__}"
                )
            order = None if schema is None or set(schema.names) != set(rows.columns) else schema
            rows = self.spark.createDataFrame(rows if order is None else rows[order.names], order)
        if rows.isStreaming:
            raise InvalidInputError("expected a batch DataFrame of rows, found a streaming one")
        return rows

    def _form(self, table: str) -> WrittenRows:
        if table not in self._forms:
            raise InvalidInputError(f"the query has no state {table!r}: expected one of {sorted(self._forms)}")
        return self._forms[table]

    def _owner(self, table: str) -> str:
        self._form(table)
        return next(uid for uid, tables in self.query.tables.items() if table in tables)


def _every_ms(uid: str, every: str | None) -> int:
    try:
        return 1 if every is None else max(1, parse_duration_ms(every))
    except (ValueError, AttributeError) as error:
        raise InvalidInputError(f"bootstrap({uid!r}): every={every!r}: expected {error}") from None


def _without(rows: DataFrame, keys: DataFrame, names: list[str]) -> DataFrame:
    """Null is a key, too."""
    these, those = rows.alias("__ckpt_rows"), keys.select(*map(quoted, names)).distinct().alias("__ckpt_keys")
    same = [F.col(f"__ckpt_rows.{quoted(n)}").eqNullSafe(F.col(f"__ckpt_keys.{quoted(n)}")) for n in names]
    return these.join(those, reduce(lambda a, b: a & b, same), "left_anti")
