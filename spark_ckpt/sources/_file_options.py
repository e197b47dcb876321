"""The options of source ``files``: types, defaults and meanings, from which its documentation is made."""

from __future__ import annotations

from spark_ckpt.sources._bad_records import FAIL, SKIP
from spark_ckpt.sources._file_modes import CSV_MODE_OPTIONS, MODE_OPTIONS
from spark_ckpt.sources._options import (
    anything,
    character_or_none,
    choice,
    duration_s,
    flag,
    one_character,
    positive,
    size,
    text,
)
from spark_ckpt.sources.old_calendar import MODES

CSV_OPTIONS = {
    "header": flag().means("csv only. The first line names the columns; without it columns go by position."),
    "sep": one_character(",").means("csv only. What separates the values of a line."),
    "quote": character_or_none('"').means("csv only. What values may stand in; empty: nothing."),
    "multiLine": flag().means("csv only. A line break inside quotes does not end the record."),
    "nullValue": anything("").means("csv only. What stands for null."),
    **CSV_MODE_OPTIONS,
}

PARQUET_OPTIONS = {
    "datetimeRebaseMode": choice(*MODES).means(
        "parquet only. As in Spark, of files that do not say which Spark wrote them, days before 1582-10-15 and times "
        "before 1900: as they are (CORRECTED), in the calendar of Spark 2 and Hive (LEGACY), or the query ends "
        "(EXCEPTION). Without it `spark.sql.parquet.datetimeRebaseModeInRead` says it."
    ),
    "int96RebaseMode": choice(*MODES).means(
        "parquet only. The same for times that are INT96, and `spark.sql.parquet.int96RebaseModeInRead`."
    ),
}

OPTIONS = {
    "path": text(expects="a folder, file or glob, local or any fsspec URL").means(
        "Where the files appear. `load(path)` sets it, too.", required=True
    ),
    "fileFormat": choice("parquet", "orc", "json", "csv", "text").means(
        "What they are; json is one object a line, text a column `value` with a row a line.", required=True
    ),
    "recursive": flag().means("Folders below, too."),
    "pathGlobFilter": text(expects="a glob for file names, such as *.json").means(
        "Only files of such names, by [Hadoop's rules](#globs)."
    ),
    "maxFilesPerTrigger": positive(1000).means("Files of a batch at most."),
    "maxRowsPerTrigger": positive().means(
        "Rows of a batch at most. Only this limit splits a file; it costs the driver a look at the files' footers, or "
        "at the text itself."
    ),
    "maxBytesPerTrigger": size().means("Bytes of a batch's files as they are stored; the first is always taken."),
    "maxSplitBytes": size(128 << 20).means("Larger Parquet and ORC files are read in parallel."),
    "badRecords": text(FAIL, f"{FAIL}, {SKIP}, or a folder").means(
        "What cannot be read ends the query, is left out, or is kept once, as a JSON file in that folder."
    ),
    "changedFiles": choice("fail", "accept", default="fail").means(
        "A file that is no longer what was discovered ends the query, or is read as it is now."
    ),
    "ignoreMissingFiles": flag().means("Go on without a file that has vanished."),
    "sinkLog": choice("follow", "ignore").means(
        "follow: in a folder of Spark's file sink only files that its log (`_spark_metadata`) names are read; "
        "ignore: every file. Without it, follow, unless `spark.sql.streaming.fileStreamSink.ignoreMetadata` is true."
    ),
    "maxFileAge": duration_s(None).means(
        "As in Spark, when some files are known: new ones that are older than the newest by more than this are passed "
        "over. Without it none is."
    ),
    "discoveryInterval": duration_s(1.0).means("How often the folder is listed at most."),
    "timeZone": text(expects="a region such as Europe/Paris, or an offset such as +02:00").means(
        "json and csv only. The zone of times that name none; without it, the session's."
    ),
    **PARQUET_OPTIONS,
    **MODE_OPTIONS,
    **CSV_OPTIONS,
}
