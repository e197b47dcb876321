"""Globs mean what they mean in Hadoop: against what it made of generated ones (``globs_oracle.py``). Without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources._globs import GlobError, NameGlob, PathGlob, is_glob
from spark_ckpt.sources.files import FilesSource
from tests.sources.globs_oracle import NAMES, RECORDED, TREE, make_tree

_FOUND = json.loads(RECORDED.read_text())
OF_NAMES, OF_PATHS = _FOUND["globs"][: _FOUND["names"]], _FOUND["globs"][_FOUND["names"] :]
REFUSED = "refused"


def matching(glob: str) -> str:
    try:
        found = NameGlob(glob)
    except GlobError as error:
        return str(error) if "a backslash in front of" in str(error) else REFUSED
    return "".join("01"[found.matches(name)] for name in NAMES)


def test_names_match_as_in_hadoop_or_the_glob_is_refused_for_a_letter_with_a_backslash() -> None:
    found = [(glob, expected, matching(glob)) for glob, expected in OF_NAMES]
    assert [one for one in found if one[1] != one[2] and "a backslash" not in one[2]] == []
    assert sum("a backslash" in one[2] for one in found) < len(found) / 50
    assert sum(one[1] == REFUSED for one in found) > 50
    assert sum("1" in one[1] for one in found) > 100


def below(fs: Any, root: str, glob: str, local: bool) -> Any:
    try:
        found = PathGlob(f"{root}/{glob}").paths(fs, local)
    except GlobError:
        return REFUSED
    return [path[len(root) :] for path in found if fs.exists(path)]


@pytest.mark.parametrize("local", [True, False])
def test_paths_are_found_as_by_hadoop_on_any_file_system(tmp_path: Path, local: bool) -> None:
    make_tree(tmp_path)
    fs, root = fsspec.filesystem("file" if local else "memory"), str(tmp_path)
    if not local:
        for name in TREE:
            fs.pipe_file(f"{root}/{name}", b"{}")
    found = [(glob, expected, below(fs, root, glob, local)) for glob, expected in OF_PATHS]
    if not local:
        fs.rm(root, recursive=True)
    # Where nothing is found in front of it, Hadoop does not look at the rest of a glob, and so does not refuse it.
    assert [one for one in found if one[1] != one[2] and (one[1], one[2]) != ([], REFUSED)] == []
    assert sum(one[1] != one[2] for one in found) < 10
    assert sum(bool(one[1]) and one[1] != REFUSED for one in found) > 50


def test_a_bucket_is_no_part_of_the_glob_and_a_file_is_not_listed_as_itself() -> None:
    fs = fsspec.filesystem("memory")
    for name in ("globs/a/x.json", "globs/b/x.json", "globs/b.json"):
        fs.pipe_file(name, b"{}")
    assert PathGlob("globs/*/*").paths(fs, False) == ["globs/a/x.json", "globs/b/x.json"]
    assert PathGlob("globs/*").paths(fs, False) == ["globs/a", "globs/b", "globs/b.json"]
    fs.rm("/globs", recursive=True)


@pytest.mark.parametrize(
    ("option", "glob", "why"),
    [
        ("path", "/in/[a", r"a class '\[' is not closed"),
        ("path", "/in/{a,b", r"a brace '\{' is not closed"),
        ("path", "/in/a\\", "nothing follows the last backslash"),
        ("pathGlobFilter", "[z-a]", "the range z-a is upside down"),
        ("pathGlobFilter", "\\d*", "a backslash in front of 'd' means something else than the letter"),
        ("pathGlobFilter", "[][:alpha:]]", r"'\[:', which means a class by name"),
    ],
)
def test_a_glob_that_hadoop_refuses_is_refused_when_the_stream_is_built(option: str, glob: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' of source 'files': expected a glob.*{why}"):
        FilesSource({"path": "/in", "fileFormat": "text", option: glob})


def test_what_spark_takes_for_a_glob_is_one() -> None:
    assert [is_glob(f"/in/a{c}") for c in "{}[]*?\\"] == [True] * 7
    assert not is_glob("/in/a,b=1 (2)!^")


def test_many_stars_take_no_long_time() -> None:
    assert not NameGlob("*" * 60 + "b").matches("a" * 255)
