"""What an installation brings is what its modules import; the extra ``testing`` brings what the test suites import."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # mypy and pytest bring it there

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

WITH_PYSPARK = {"py4j"}
"""In the version that PySpark asks for."""
PLUGINS = {"mypy": "mypy.py"}
"""What asks for a module of ours, and so is there -> that module."""


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", r, maxsplit=1)[0].lower() for r in requirements}


def _imported(folder: Path) -> dict[str, str]:
    """Top-level names that modules below ``folder`` import, wherever in them -> one of the modules."""
    found = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            else:
                continue
            found.update({n: str(path) for name in names if PLUGINS.get(n := name.split(".")[0]) != path.name})
    return {
        n: p for n, p in found.items() if n not in sys.stdlib_module_names and n not in {"spark_ckpt", *WITH_PYSPARK}
    }


@pytest.mark.parametrize(("folder", "extras"), [("testing", ["testing"]), ("", sorted({*EXTRAS} - {"dev"}))])
def test_every_package_that_is_imported_is_asked_for(folder: str, extras: list[str]) -> None:
    asked = _names([*PROJECT["dependencies"], *(r for e in extras for r in EXTRAS[e])])
    known = {name: {d.lower().replace("_", "-") for d in dists} for name, dists in packages_distributions().items()}
    imported = _imported(ROOT / "spark_ckpt" / folder)
    assert imported
    missing = {name: path for name, path in imported.items() if not asked & known.get(name, {name})}
    assert missing == {}


@pytest.mark.parametrize(
    "module",
    [
        "output_mode_conformance",
        "record_store_conformance",
        "sink_conformance",
        "sink_harness",
        "source_conformance",
        "source_harness",
    ],
)
def test_a_suite_that_fails_in_somebodys_project_shows_what_was_found(module: str) -> None:
    """As a test module of that project would: pytest writes its asserts anew."""
    loader = importlib.import_module(f"spark_ckpt.testing.{module}").__loader__
    assert type(loader).__name__ == "AssertionRewritingHook"


def test_without_extras_the_package_and_its_processes_are_imported() -> None:
    """Whoever installs spark-ckpt alone has no gRPC, which Spark Connect asks for, and none of what sinks bring."""
    extras = ["grpc", "sqlalchemy", "confluent_kafka", "fastavro", "pyiceberg", "s3fs", "botocore"]
    modules = ["spark_ckpt.api.session", "spark_ckpt.plain.plugin", "spark_ckpt.runtime.datasource", "spark_ckpt.cli"]
    code = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({extras}))  # none of them is found
for name in {modules}:
    importlib.import_module(name)
print("all")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    # Imported without gRPC, Spark Connect may end a process without an error.
    assert done.stdout == "all\n", done.stderr[-2000:]


def test_contributors_get_what_users_get() -> None:
    (own,) = [r for r in EXTRAS["dev"] if r.startswith("spark-ckpt[")]
    untested = {"gcs", "azure"}  # docs/running.md says so
    demos = {"demo", "demo_s3"}  # they pin PySpark, and the tests run on others, too
    brought = _names([*PROJECT["dependencies"], *EXTRAS["dev"]])
    assert _names([*EXTRAS["demo"], *EXTRAS["demo_s3"]]) <= brought
    assert set(EXTRAS) - {"dev"} - untested - demos == set(re.findall(r"\w+", own.split("[")[1]))


CONDA_NAMES = {"xxhash": "python-xxhash"}


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    recipe = (ROOT / "conda/meta.yaml").read_text()
    assert f'set version = "{PROJECT["version"]}"' in recipe
    asked = set(re.findall(r"^    - (\S.*)$", recipe.partition("  run:\n")[2].partition("\n\n")[0], re.MULTILINE))
    wanted = {re.sub(r"^[\w-]+", lambda m: CONDA_NAMES.get(m[0].lower(), m[0].lower()) + " ", d) for d in
              PROJECT["dependencies"]}  # fmt: skip
    assert asked - wanted == {f"python {PROJECT['requires-python']}", "openjdk >=17"}
    assert wanted <= asked
