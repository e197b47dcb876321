"""The conf that Spark's driver was started with, for Python processes that Spark starts beside it.

Spark tells a data source its options and nothing of its conf. But such a process stands below the driver's JVM, whose
command line has what ``spark-submit`` or ``SparkSession.builder`` was given, and says where the defaults are. What a
session sets later is not in there, and neither is anything where ``/proc`` is missing. Driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

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
