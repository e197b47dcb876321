"""The conf that Spark's driver was started with, for Python processes that Spark starts beside it.

Spark tells a data source its options and nothing of its conf. But such a process stands below the driver's JVM, whose
command line has what ``spark-submit`` or ``SparkSession.builder`` was given, and says where the defaults are. What a
session sets later is not in there, and neither is anything where ``/proc`` is missing. Driver.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from spark_ckpt.api.writers import in_our_terms, sink_named
from spark_ckpt.config import PREFIX, STORAGE, JobConfig, is_job_option
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.batch_functions import BatchFunction
from spark_ckpt.execution.session_confs import session_location
from spark_ckpt.jobs.spark_folder import one_spelling
from spark_ckpt.jobs.spec import SinkSpec, SourceSpec, asked_for, job_url, with_absolute_dir
from spark_ckpt.jobs.start import checked_sinks
from spark_ckpt.names import checked_name
from spark_ckpt.sinks.base import TwoPhaseSink
from spark_ckpt.sinks.registry import sink_names
from spark_ckpt.sources.spark_file_options import FILE_FORMATS, files_options
from spark_ckpt.storage.job_paths import JobPaths

_SPARK = "org.apache.spark."
FLAGS = {"--verbose", "-v", "--supervise", "--help", "-h", "--version", "--usage-error", "--load-spark-defaults"}
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]\s*(.*)", re.DOTALL)
_GENERATIONS = 8


@cache
def launch_conf() -> Mapping[str, str]:
    """Key -> value; empty if it cannot be seen."""
    for command in _ancestors():
        found = conf_of(command, os.environ)
        if found is not None:
            return found
    return {}


def conf_of(command: Sequence[str], environ: Mapping[str, str]) -> dict[str, str] | None:
    """What the command line ``command`` of a JVM says, as Spark reads it; None if it is not Spark's."""
    main = next((i for i, word in enumerate(command) if word.startswith(_SPARK)), None)
    if main is None:
        return None
    files: list[str] = []
    found = dict(word[2:].split("=", 1) for word in command[:main] if word.startswith("-Dspark.") and "=" in word)
    defaults = True
    for name, value in _options(command[main + 1 :]):
        if name in ("--conf", "-c"):
            key, _, text = value.partition("=")
            found[key] = text
        elif name == "--properties-file":
            files, defaults = [value], False
        elif name == "--load-spark-defaults":
            defaults = True
    folder = environ.get("SPARK_CONF_DIR") or os.path.join(environ.get("SPARK_HOME", ""), "conf")
    wanted = [os.path.join(folder, "spark-defaults.conf"), *files] if defaults else files
    return {**{k: v for file in wanted for k, v in _properties(file).items()}, **found}


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Up to the program, whose own arguments are not Spark's."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return
        name, given, value = word.partition("=")
        yield name, value if given else "" if name in FLAGS else next(rest, "")


def _properties(file: str) -> dict[str, str]:
    """A file of Java properties, as Spark has them: ``key value``, ``key=value``, comments, long lines."""
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    lines = (line.strip() for line in re.sub(r"(?<!\\)\\\n\s*", "", text).splitlines())
    pairs = (_PAIR.fullmatch(line) for line in lines if line and line[0] not in "#!")
    return {_plain(p.group(1)): _plain(p.group(2)) for p in pairs if p is not None}


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _ancestors() -> Iterator[list[str]]:
    """The command lines of the processes above this one."""
    process = os.getppid()
    for _ in range(_GENERATIONS):
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            stat = Path(f"/proc/{process}/stat").read_text()
        except (OSError, UnicodeDecodeError):
            return
        yield [word.decode(errors="replace") for word in command.split(b"\0")[:-1]]
        # "1234 (name, which may have blanks) S 1 ..."
        process = int(stat.rpartition(")")[2].split()[1])


_RESERVED = ("source", "sink", "sinks", "checkpointlocation", "queryname")
_OF_TABLES = ("provider", "owner", "external", "comment", "collation", "is_managed_location", "location")
"""What Spark's catalog notes of a table that was made ``USING ckpt``."""
_OF_A_SESSION = "/userFiles-"
Options = Mapping[str, str]


def _refuse_positions(config: JobConfig) -> None:
    """They are found ahead of a start, which the plugin has not: Spark asks a source for its offsets as it runs."""
    for name, asked in (("startingFrom", config.starting_from), ("endingAt", config.ending_at)):
        if asked:
            raise ConfigError(
                f"format('ckpt') cannot follow {PREFIX}{name}: expected none, found it for {sorted(asked)}; write the "
                "query with spark_ckpt.enable(spark), which goes on from the same job, or leave the setting out"
            )


def job_of(options: Options) -> tuple[JobConfig, str]:
    """The job, and Spark's location of its query. Raises ``ConfigError``.

    What the options do not say is said by the conf that Spark was started with, where that can be seen.
    """
    conf = launch_conf()
    known = {k: v for k, v in conf.items() if k.startswith(PREFIX)}
    given = {k: v for k, v in options.items() if is_job_option(k)}
    if not any(k.lower().removeprefix(PREFIX) == "dir" for k in {**known, **given}):
        raise ConfigError(
            "format('ckpt') needs option dir, the folder or URL where checkpoints are kept, on the reader and on the "
            f"writer; or {PREFIX}dir in the conf that Spark is started with (what a session sets later is not seen)"
        )
    config, query = JobConfig.from_options(known, given), options.get("queryname")
    _refuse_positions(config)
    _refuse_relative(f"{PREFIX}dir", config.dir)
    config = with_absolute_dir(config)
    config = config if config.job or not query else replace(config, job=query)
    if config.job is None:
        raise ConfigError(
            "format('ckpt') needs option job, the job's name, on the reader and, if that is not the query's name, on "
            f"the writer; or {PREFIX}job in the conf that Spark is started with"
        )
    location = options.get("checkpointlocation") or session_location(conf, query or config.job)
    below = f"{config.spark_dir.rstrip('/')}/{config.job}" if config.spark_dir else None
    return config, one_spelling(location or below or JobPaths(job_url(config, config.job)).spark)


def source_of(options: Options, schema: StructType | None) -> SourceSpec:
    """Raises ``ConfigError``; options of the source itself are checked by whoever makes it."""
    kind, own = options.get("source"), _own(options)
    if not kind:
        raise ConfigError(
            "readStream.format('ckpt') needs option source: files, delta, rate, parquet, orc, json, csv, text or "
            "module:Class"
        )
    uid = own.pop("uid", None)
    if kind.lower() in FILE_FORMATS:
        kind, own = "files", files_options(kind.lower(), own, schema is not None)
    default = f"{kind.rsplit(':', 1)[-1].lower()}-0"
    uid = checked_name("source uid", uid or default)
    _refuse_relative("option path of the source", own.get("path", "/"))
    # Where spark.ckpt.lanes says nothing: how many cores the cluster has is not to be seen from here.
    lost_in = "the plain Spark operations between reader and writer, and whether the writer is format('ckpt')"
    return SourceSpec(uid, kind, own, schema, True, (), (), os.cpu_count() or 2, plain_operations=(lost_in,))


def sinks_of(options: Options) -> tuple[SinkSpec, ...]:
    """Raises ``ConfigError``; options of the sinks themselves are checked by whoever makes them."""
    return _sinks_of(tuple(sorted(options.items())))


@lru_cache(8)  # asked for twice a batch, and what it warns of is known
def _sinks_of(items: tuple[tuple[str, str], ...]) -> tuple[SinkSpec, ...]:
    requests = _requests(CaseInsensitiveDict(items))
    specs = checked_sinks(requests)
    for spec, (_, given) in zip(asked_for(specs), requests, strict=True):
        for name in (n for n, value in spec.options.items() if given[n] != value):
            _refuse_relative(f"option {name} of sink {spec.id!r}", "")
    return specs


def _requests(options: Options) -> list[tuple[Any, dict[str, str]]]:
    one, several = options.get("sink"), options.get("sinks")
    if one and several:
        raise ConfigError("options sink and sinks are both given; one sink is sink, several are sinks")
    if several:
        return [_request(*request) for request in _several(several, _own(options))]
    if not one:
        raise ConfigError(
            "writeStream.format('ckpt') needs option sink, such as delta, sql or files; or sinks, such as "
            "'delta,sql', with the options of each behind its name: delta.path, sql.url"
        )
    return [_request(one, _own(options))]


def _several(names: str, options: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
    """``a,b`` with ``a.sink``, ``a.path``, ``b.sink`` ...: each sink's kind and own options, ``uid`` among them."""
    wanted = [checked_name("sink uid", name.strip()) for name in names.split(",")]
    lower = [name.lower() for name in wanted]
    bad = [n for i, n in enumerate(lower) if n in lower[:i] or "." in n or n == STORAGE.rstrip(".")]
    if bad:
        raise ConfigError(
            f"option sinks {names!r}: expected names that differ, comma separated, without dots; found {bad[0]!r}. Two "
            "of a kind are two names, with a.sink and b.sink to say of which kind"
        )
    own: dict[str, dict[str, str]] = {name: {} for name in wanted}
    for key, value in options.items():
        name, dot, option = key.partition(".")
        if not dot or name.lower() not in lower:
            raise ConfigError(
                f"option {key!r} belongs to none of the sinks {', '.join(wanted)}: expected {wanted[0]}.{key}"
            )
        own[wanted[lower.index(name.lower())]][option] = value
    return [(o.pop("sink", name), {"uid": name, **o}) for name, o in own.items()]


def _request(kind: str, options: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """A sink in our terms: Spark's formats of files are ``files``, ``module:Class`` is the class."""
    found, own = in_our_terms(_class_named(kind) if ":" in kind else sink_named(kind), options)
    if isinstance(found, BatchFunction):
        raise ConfigError(
            f"sink {kind!r} runs in the process that started the query, which a plain stream does not know: use "
            f"spark_ckpt.enable(spark).readStream; sinks here are {', '.join(sink_names())} and module:Class"
        )
    return found, own


def _class_named(path: str) -> type[TwoPhaseSink]:
    """A sink's class by its import path, which the user wrote. Nothing that was read comes by here."""
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"cannot load the sink {path!r}: {error}; expected an importable 'module:Class' (ship the module to the "
            "driver and the executors with spark.submit.pyFiles or an installed package)"
        ) from error
    if not (isinstance(found, type) and issubclass(found, TwoPhaseSink)):
        raise ConfigError(f"sink {path!r}: expected a class derived from TwoPhaseSink, found {found!r}")
    return found


def _refuse_relative(what: str, path: str) -> None:
    """Spark Connect runs Python in a folder that goes with the session, and with it what is written there."""
    if not os.path.isabs(path) and "://" not in path and _OF_A_SESSION in os.getcwd():
        raise ConfigError(f"{what} is relative, and Spark Connect has no folder of yours: give the absolute path")


def _own(options: Options) -> dict[str, str]:
    """Those of the source or the sinks."""
    theirs = {k: v for k, v in options.items() if k.lower() not in _RESERVED and not is_job_option(k)}
    of_table = "provider" in options
    return {k: v for k, v in theirs.items() if not (of_table and (k in _OF_TABLES or k.startswith("option.")))}
