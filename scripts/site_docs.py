"""Write the generated parts of the site's pages: options, types, and code that tests run.

A part stands between `<!-- KIND: ARGUMENTS -->` and `<!-- /KIND -->`. A test keeps all of them in step with the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyspark.sql.functions
import typer.main
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType
from sqlalchemy.dialects import mysql, postgresql, sqlite

from spark_ckpt.arrow_types import database_type, delta_type
from spark_ckpt.cli import app
from spark_ckpt.errors import CkptError
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.sinks import files_formats
from spark_ckpt.sinks.registry import sink_class
from spark_ckpt.sinks.sql.types import sql_type
from spark_ckpt.sources import file_text, files, rate, rate_micro_batch
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.delta import options as delta
from spark_ckpt.sources.iceberg import source as iceberg
from spark_ckpt.sources.kafka import source as kafka
from spark_ckpt.sources.sql import source as sql

ROOT = Path(__file__).parents[1]
PART = re.compile(r"(?P<begin><!-- (?P<kind>[a-z]+): (?P<about>[^>]+) -->\n).*?(?P<end><!-- /(?P=kind) -->)", re.DOTALL)
SOURCES = {
    name: module.OPTIONS
    for name, module in (
        ("files", files),
        ("delta", delta),
        ("kafka", kafka),
        ("iceberg", iceberg),
        ("sql", sql),
        ("rate", rate),
        ("rate-micro-batch", rate_micro_batch),
    )
}
TYPES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(15,2)", "decimal(38,6)", "string",
    "binary", "date", "timestamp", "timestamp_ntz", "interval day to second", "array<int>", "map<string,int>",
    "struct<a:int>",
)  # fmt: skip
NO = "refused"


def main() -> None:
    for page in pages():
        page.write_text(rendered(page.read_text()))


def pages() -> list[Path]:
    return sorted((ROOT / "docs").glob("*.md"))


def rendered(text: str) -> str:
    """``text`` with its generated parts as the code has it now."""
    return PART.sub(lambda m: f"{m['begin']}{PARTS[m['kind']](*m['about'].split())}{m['end']}", text)


def _options(kind: str, name: str) -> str:
    return _table(["option", "value", "default", "meaning"], _source(name) if kind == "source" else _sink(name))


def _source(name: str) -> Iterable[Sequence[str]]:
    for option, o in SOURCES[name].items():
        default = "(required)" if o.required else "none" if o.default is None else _code(o.shown(o.default))
        yield f"`{option}`", o.expects, default, o.meaning


def _sink(name: str) -> Iterable[Sequence[str]]:
    declared: Any = sink_class(name)
    for o in declared.DECLARED:
        default = "(required)" if o.required else "none" if o.default is None else _code(o.default)
        yield f"`{o.name}`", o.expects, default, o.meaning


def _types(kind: str) -> str:
    if kind == "source":
        found = [[f"`{t}`", *_read(_arrow(t))] for t in TYPES if not t.startswith("interval")]
        return _table(["Spark's type", "parquet", "json", "csv"], [row for row in found if NO in row])
    heads = ["Spark's type", "`delta`", "`sql`: SQLite", "PostgreSQL", "MariaDB", "`files`: parquet", "json", "csv"]
    return _table(heads, ([f"`{t}`", *_written(_arrow(t))] for t in TYPES))


def _read(kind: pa.DataType) -> list[str]:
    schema = pa.schema([("c", kind)])
    texts = [_try(lambda f=f: file_text.check_schema(f, schema) or "yes") for f in ("json", "csv")]
    return ["yes", *texts]


def _written(kind: pa.DataType) -> list[str]:
    schema = pa.schema([("c", kind)])
    databases = [sqlite.dialect(), postgresql.dialect(), mysql.dialect()]
    columns = [_try(lambda d=d: _code(sql_type(database_type("c", kind)).compile(dialect=d))) for d in databases]
    formats = [_try(lambda f=f: files_formats.check_schema(f, schema) or "yes") for f in ("parquet", "json", "csv")]
    return [_try(lambda: _code(_delta(kind))), *columns, *formats]


def _delta(kind: pa.DataType) -> str:
    found = deltalake.Schema.from_arrow(pa.schema([("c", delta_type("c", kind))])).fields[0].type
    return getattr(found, "type", None) if isinstance(getattr(found, "type", None), str) else str(found)


def _try(made: Callable[[], str]) -> str:
    try:
        return made()
    except CkptError:
        return NO


def _arrow(text: str) -> pa.DataType:
    interval = StructType([StructField("c", DayTimeIntervalType())])
    return arrow_schema(interval if text.startswith("interval") else parse_ddl(f"c {text}")).field(0).type


def _code(text: object) -> str:
    shown = str(text).replace("|", "\\|")
    return f"`{shown}`" if shown else "empty"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _file(path: str, begin: str = "") -> str:
    """The file, or what stands between its lines `# --- BEGIN` and `# ---`."""
    text = (ROOT / path).read_text()
    if begin:
        text = text.split(f"# --- {begin}\n")[1].split("# ---")[0]
    return f'```python title="{path}"\n{text.strip()}\n```\n'


def _commands(program: str) -> str:
    return "".join(_command(program, name, command) for name, command in typer.main.get_command(app).commands.items())


def _command(program: str, name: str, command: Any) -> str:
    given = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([program, name, *(p.name.upper() if p.required else f"[{p.name.upper()}]" for p in given)])
    about = inspect.cleandoc(command.help or "")
    rows = [[f"`{p.name.upper()}`", p.help] for p in given]
    rows += [[f"`{', '.join(p.opts)}`", p.help] for p in command.params if p.param_type_name == "option"]
    return f"## {name}\n\n```text\n{usage}\n```\n\n{about}\n\n{_table(['', ''], rows)}\n"


def _functions(_in: str, where: str) -> str:
    """Spark's functions by where they run; of PySpark's names for them."""
    if where == "python":
        return _table(
            ["what", "functions"], [[what, ", ".join(f"`{n}`" for n in names)] for what, names in HERE.items()]
        )
    here = {name for names in HERE.values() for name in names}
    others = sorted(name for name in pyspark.sql.functions.__all__ if name[0].islower() and name not in here)
    return "\n" + ", ".join(f"`{name}`" for name in others) + ".\n\n"


HERE = {
    "arithmetic": [
        "+", "-", "*", "/", "%", "div", "&", "|", "^", "~", "abs", "bitwise_not", "ceil", "ceiling", "floor", "negate",
        "negative", "positive", "round of a decimal", "sqrt",
    ],
    "comparison": [
        "=", "<>", "<", "<=", ">", ">=", "<=>", "between", "in", "equal_null", "isnan", "isnotnull", "isnull", "and",
        "or", "not",
    ],
    "choice": ["case when", "when", "coalesce", "greatest", "if", "ifnull", "least", "nanvl", "nullif", "nvl", "nvl2"],
    "casts": [
        "between numbers", "boolean to number and back", "anything but floats to string", "string to anything",
        "between date and timestamp", "number to timestamp and back",
    ],
    "text": [
        "btrim", "char_length", "character_length", "concat", "concat_ws", "contains", "endswith", "initcap", "instr",
        "lcase",
        "left", "length", "like", "locate", "lower", "lpad", "ltrim", "position", "regexp", "regexp_extract",
        "regexp_like", "regexp_replace", "repeat", "replace", "reverse", "right", "rlike", "rpad", "rtrim", "split",
        "startswith",
        "substr", "substring", "substring_index", "translate", "trim", "ucase", "upper",
    ],
    "time": [
        "add_months", "date_add", "date_diff", "date_format", "date_sub", "date_trunc", "datediff", "day", "dayofmonth",
        "dayofweek", "dayofyear", "from_unixtime", "hour", "last_day", "minute", "month",
        "plus and minus an interval", "quarter",
        "second", "timestamp_micros", "timestamp_millis", "timestamp_seconds", "to_date", "to_timestamp",
        "to_unix_timestamp",
        "trunc", "unix_date", "unix_micros", "unix_millis", "unix_seconds", "unix_timestamp", "weekday", "year",
    ],
    "structs and arrays": [
        "a field of one", "named_struct", "struct", "an element of one", "array_contains", "array_size",
        "cardinality", "element_at",
        "from_json", "get", "get_json_object", "json_array_length", "json_object_keys", "size",
    ],
}  # fmt: skip
"""What of Spark's runs in Python, by PySpark's names where it has one. A test asks for each of them."""

PARTS: dict[str, Callable[..., str]] = {
    "options": _options, "types": _types, "file": _file, "commands": _commands, "functions": _functions,
}  # fmt: skip

if __name__ == "__main__":
    main()
