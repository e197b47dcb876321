"""Dependencies point inward, and the protocol is pure."""

from __future__ import annotations

import ast
import graphlib
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import spark_ckpt
from spark_ckpt.storage import job_paths
from spark_ckpt.testing.sink_harness import permit
from spark_ckpt.types import CheckpointId, CommitPermit, Generation

ROOT = Path(spark_ckpt.__file__).parent
PURE = {
    "__future__", "abc", "base64", "binascii", "collections", "dataclasses", "enum", "functools", "itertools",
    "json", "operator", "types", "typing", "spark_ckpt", "zlib",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__"}

BASE = {"errors", "names", "types"}
_LOWER = {
    "arrow_layouts",
    "arrow_types",
    "clock",
    "config",
    "config_values",
    "faults",
    "protocol",
    "redaction",
    "spark_versions",
    "state",
    "storage",
    "sources",
    "sinks",
}
INNER = {
    "types": set(),
    "errors": set(),
    "arrow_layouts": set(),
    "arrow_types": {"arrow_layouts", "errors"},
    "change_rows": {"errors"},
    "clock": set(),
    "spark_versions": set(),
    "names": {"errors"},
    "redaction": {"errors"},
    "kafka_client": {"errors", "redaction"},
    "formats": {"errors", "expressions", "redaction"},
    "config_values": {*BASE, "redaction"},
    "config": {*BASE, "config_values", "redaction"},
    "agg": BASE,
    "faults": BASE,
    "shown": {"errors"},
    "protocol": {*BASE, "shown"},
    "state": {*BASE, "agg", "arrow_layouts", "arrow_types", "change_rows", "expressions", "protocol", "spark_versions"},
    "storage": {*BASE, "arrow_layouts", "arrow_types", "clock", "config", "faults", "protocol", "redaction", "state"},
    "sources": {
        *BASE,
        "arrow_layouts",
        "arrow_types",
        "clock",
        "config",
        "config_values",
        "expressions",
        "formats",
        "kafka_client",
        "protocol",
        "redaction",
        "spark_versions",
        "storage",
    },
    "sinks": {
        *BASE,
        "arrow_layouts",
        "arrow_types",
        "change_rows",
        "clock",
        "config",
        "config_values",
        "expressions",
        "formats",
        "kafka_client",
        "protocol",
        "redaction",
        "storage",
    },
    "expressions": {"errors", "spark_versions"},
    "hints": set(),
    "jobs": {*BASE, *_LOWER, "hints", "shown"},
    "monitoring": {*BASE, "clock", "config", "config_values", "jobs", "protocol", "shown", "sources", "storage"},
    "ui": {*BASE, "config", "jobs", "monitoring", "storage"},
    "runtime": {*BASE, *_LOWER, "expressions", "jobs"},
    "execution": {*BASE, "agg", *_LOWER, "expressions", "formats", "jobs", "runtime", "shown"},
    "operators": {*BASE, "agg", *_LOWER, "expressions", "formats", "jobs", "runtime", "execution"},
    "plan": {*BASE, "agg", *_LOWER, "expressions", "formats", "jobs", "runtime", "execution", "operators"},
    "api": {*BASE, *_LOWER, "agg", "hints", "jobs", "monitoring", "runtime", "execution", "operators", "plan", "shown"},
    "plain": {*BASE, *_LOWER, "jobs", "runtime", "execution", "operators", "plan", "api"},
}
"""What each room may import. ``cli``, ``testing`` and the package itself are outermost."""
WITHOUT = {
    "state": {"deltalake", "fsspec", "requests", "socket", "sqlalchemy", "subprocess"},
    "storage": {"pyspark", "delta", "py4j"},
    "sinks": {"pyspark", "delta", "py4j"},
    "jobs": {"pyspark", "delta", "py4j"},
    "expressions": {"pyspark", "delta", "py4j"},
    "formats": {"pyspark", "delta", "py4j"},
    "monitoring": {"pyspark", "delta", "py4j"},
    "ui": {"pyspark", "delta", "py4j"},
}
"""What a room must do without. Sources are PySpark's own interface, and ``state`` runs users' pandas functions."""

NAMED_BY_USERS = {"spark_ckpt", "spark_ckpt.testing", *(f"spark_ckpt.{m}" for m in spark_ckpt._MODULES.values())}
"""Packages and modules that are imported from outside by name."""


@dataclass(frozen=True)
class Nodes:
    """Those of a file that rules are about: reading all files takes longer than looking at these."""

    skipped: set[ast.AST]
    imports: list[ast.Import | ast.ImportFrom]
    names: set[str]
    texts: list[ast.JoinedStr | ast.BinOp]


@cache
def nodes(path: Path) -> Nodes:
    found = Nodes(set(), [], set(), [])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and _type_checking(node.test):
            found.skipped.update(ast.walk(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.Name):
            found.names.add(node.id)
        elif isinstance(node, ast.JoinedStr | ast.BinOp):
            found.texts.append(node)
    return found


def imports(path: Path) -> set[str]:
    """Every module that ``path`` imports, inside functions too; imports for type checking only do not count."""
    skipped = nodes(path).skipped
    found: set[str] = set()
    for node in nodes(path).imports:
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            # "from spark_ckpt import x" may name a room.
            names = {f"{node.module}.{a.name}" for a in node.names} if node.module == "spark_ckpt" else set()
            found |= names or {node.module}
    return found


def _type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def files(room: str) -> list[Path]:
    path = ROOT / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "spark_ckpt" and len(parts) > 1 else None


@pytest.mark.parametrize("room", INNER)
def test_dependencies_point_inward(room):
    for path in files(room):
        used = {r for r in map(room_of, imports(path)) if r is not None}
        assert used <= INNER[room] | {room}, f"{path} imports {sorted(used - INNER[room] - {room})}"


def test_modules_of_the_front_door_import_each_other_in_no_circle():
    paths = [path for room in ("execution", "operators", "plan", "api", "plain") for path in files(room)]
    modules = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in paths}

    def imported(path: Path) -> set[str]:
        by_name = re.findall(r"^ *from (\S+) import (\w+) as ", path.read_text(), re.MULTILINE)
        return modules.keys() & {*imports(path), *(f"{package}.{name}" for package, name in by_name)}

    graphlib.TopologicalSorter({name: imported(path) for name, path in modules.items()}).prepare()


@pytest.mark.parametrize("room", WITHOUT)
def test_a_room_does_without_what_is_outside(room):
    for path in files(room):
        foreign = {m.split(".")[0] for m in imports(path)} & WITHOUT[room]
        assert not foreign, f"{path} imports {sorted(foreign)}"


def test_the_process_that_spark_starts_for_the_sources_of_each_query_imports_no_pandas():
    """A third of what it takes until it answers; the first ``pa.array`` of a process imports it. So does PyIceberg."""
    sources = [_dotted(path) for path in files("sources") if path.parent.name != "iceberg"]
    modules = ["spark_ckpt.runtime.datasource", *sources]
    code = f"import importlib, sys\nfor m in {modules}: importlib.import_module(m)\nprint('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=True)
    assert done.stdout == "False\n", done.stdout


def test_what_older_versions_of_spark_have_not_is_imported_in_one_room():
    """``pyspark.sql.streaming.datasource`` came with 4.2."""
    folders = [ROOT, *(ROOT.parent / name for name in ("examples", "python_datasource", "tests"))]
    found = [p for folder in folders for p in folder.rglob("*.py") if "pyspark.sql.streaming.datasource" in imports(p)]
    assert [path.relative_to(ROOT).as_posix() for path in found] == ["spark_versions/read_limits.py"]


def importers() -> dict[str, set[str]]:
    """Who imports each module, as dotted names; for type checking, too. Tests may look inside."""
    modules = {_dotted(path): path for path in sorted(ROOT.rglob("*.py")) if path.name != "__init__.py"}
    others = [path for folder in ("benchmarks", "examples", "scripts") for path in (ROOT.parent / folder).rglob("*.py")]
    found: dict[str, set[str]] = {name: set() for name in modules}
    for path in (*ROOT.rglob("*.py"), *others):
        name = _dotted(path)
        for node in nodes(path).imports:
            if isinstance(node, ast.ImportFrom):
                for imported in {node.module, *(f"{node.module}.{a.name}" for a in node.names)} & modules.keys():
                    found[imported].add(name)
    return found


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def test_a_module_begins_with_an_underscore_if_and_only_if_its_package_alone_imports_it():
    wrong = []
    for module, users in importers().items():
        package, _, name = module.rpartition(".")
        own = all(user == package or user.startswith(f"{package}.") for user in users)
        private = name.startswith("_") and name != "__main__"
        if private != (own and bool(users) and package not in NAMED_BY_USERS and module not in NAMED_BY_USERS):
            wrong.append(module)
    assert not wrong


def test_the_protocol_imports_nothing_impure():
    assert len(files("protocol")) > 5
    for path in files("protocol"):
        foreign = {m.split(".")[0] for m in imports(path)} - PURE
        assert not foreign, f"{path} imports {sorted(foreign)}"


def test_the_protocol_calls_nothing_impure():
    for path in files("protocol"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in IMPURE_CALLS, f"{path}:{node.lineno} calls {node.func.id}"
            assert not isinstance(node, ast.Global | ast.AsyncFunctionDef), f"{path}:{node.lineno}"


FOLDERS = "|".join((*get_args(job_paths.RecordFolder), "history", "spark", "sources", "state"))
PATH = re.compile(rf"(^|/)({FOLDERS})(/|$)")
OTHER_LAYOUTS = {"protocol", "sinks", "sources", "testing", "cli"}
"""Rooms that touch no file of a job by name: what they say of such a path is for people, or a layout of their own."""


def path_pieces(texts_of_file: list[ast.JoinedStr | ast.BinOp]) -> list[ast.expr]:
    """Texts with a part that is filled in, added or joined on, and which look like a path in a job's folder."""
    pieces: list[ast.expr] = []
    for node in texts_of_file:
        texts = [node.left, node.right] if isinstance(node, ast.BinOp) else node.values
        text = "".join(t.value if isinstance(t, ast.Constant) and isinstance(t.value, str) else "*" for t in texts)
        if len(texts) > 1 and not re.search(r"\s", text) and PATH.search(text):
            pieces.append(node)
    return pieces


def test_paths_below_a_jobs_folder_are_put_together_in_one_module():
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0]
        if path != Path(job_paths.__file__) and room not in OTHER_LAYOUTS:
            found = path_pieces(nodes(path).texts)
            assert not found, f"{path}:{found[0].lineno} puts a path together: {ast.unparse(found[0])}"


def test_only_the_commit_asks_for_a_permit_and_only_the_protocol_makes_one():
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        used = nodes(path).names
        assert "PERMIT_ISSUER" not in used or name in ("types.py", "protocol/permit.py"), name
        assert "permit_for" not in used or name in ("protocol/publish.py", "testing/sink_harness.py"), name


def test_a_permit_made_by_hand_is_refused():
    with pytest.raises(TypeError, match=r"not made by hand.*sink_harness"):
        CommitPermit("job", CheckpointId(1), Generation(1))
    made = permit(3)
    assert (made.checkpoint, made.generation, made.oldest) == (3, 1, None)
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises((TypeError, ValueError)):
        replace(made, checkpoint=CheckpointId(4))


def test_one_clock_says_what_time_it_is():
    """In milliseconds, which records have. Seconds are for ages of files and for waiting."""
    for path in sorted(ROOT.rglob("*.py")):
        asked = "time.time() * 1000" in path.read_text()
        assert not asked or path.name == "clock.py", path


def test_every_mutation_finds_the_text_of_its_rule_and_leaves_python():
    scripts = Path(__file__).resolve().parents[2] / "scripts"
    listing = "from mutations import MUTATIONS; print([(m.file, m.rule, m.old, m.new) for m in MUTATIONS])"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, cwd=scripts, check=True)
    mutations = ast.literal_eval(done.stdout)
    assert len(mutations) > 200
    for file, rule, old, new in mutations:
        source = (ROOT / file).read_text()
        assert source.count(old) == 1, f"{file}, {rule!r}: found {source.count(old)} times"
        compile(source.replace(old, new), f"{file}, {rule!r}", "exec")  # or any test would notice


@pytest.mark.parametrize(("table", "most"), [("flink-scenarios.md", 100), ("spark-scenarios.md", 20)])
def test_the_tables_of_scenarios_name_tests_that_there_are(table: str, most: int) -> None:
    folder = Path(__file__).resolve().parents[2]
    named = set(re.findall(r"`(test_\w+)`", (folder / "docs/design" / table).read_text()))
    files = [*(folder / "tests").rglob("*.py"), *(ROOT / "testing").glob("*conformance.py")]
    there = {name for f in files for name in re.findall(r"def (test_\w+)\(", f.read_text())}
    assert len(named) > most
    assert named - there - {f.stem for f in files} == set()
