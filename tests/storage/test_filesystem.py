"""One spelling of every folder's URL, and no secrets in messages."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.filesystem import Folder, normalize_url, open_filesystem


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3a://bucket/dir/", "s3://bucket/dir"),
        ("s3n://bucket/dir", "s3://bucket/dir"),
        ("file:/tmp/x", "/tmp/x"),
        ("file:///tmp/x/", "/tmp/x"),
        ("file://localhost/tmp/x", "/tmp/x"),
        ("/tmp//x/../y", "/tmp/y"),
        ("memory://a/b/", "memory://a/b"),
    ],
)
def test_every_spelling_that_spark_takes_means_one_folder(url: str, expected: str) -> None:
    assert normalize_url(url) == expected


def test_a_relative_path_is_below_the_working_directory() -> None:
    assert normalize_url("x/y") == os.path.join(os.getcwd(), "x", "y")


@pytest.mark.parametrize("url", ["", "  "])
def test_an_empty_path_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="found an empty value"):
        normalize_url(url)


def test_an_unknown_scheme_is_refused_without_showing_options_or_passwords() -> None:
    with pytest.raises(InvalidInputError, match="nosuchthing") as caught:
        open_filesystem("nosuchthing://me:hunter2@host/dir?token=hunter2", {"secret": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me@host/db", "postgresql://***@host/db"),
        ("https://h/x?sig=abc&a=1&access_token=t", "https://h/x?sig=***&a=1&access_token=***"),
        ("/plain/path", "/plain/path"),
        ("s3://bucket/dir", "s3://bucket/dir"),
    ],
)
def test_redacting_hides_passwords_and_keys_and_nothing_else(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "f") if request.param == "local" else f"memory://{uuid.uuid4().hex}/f")


def test_a_file_is_created_once_and_replaced_as_a_whole(folder: Folder) -> None:
    assert folder.create("a/x", b"one")
    assert not folder.create("a/x", b"two")
    assert folder.read("a/x") == b"one"
    folder.replace("a/x", b"three")
    assert folder.read("a/x") == b"three"
    assert folder.read_range("a/x", 1, 3) == b"hre"
    assert folder.read_range("a/x", 3, 100) == b"ee"


def test_listing_tells_files_from_folders_and_hides_hidden_ones(folder: Folder) -> None:
    for name in ("b", "a", ".hidden", "sub/c"):
        folder.create(name, b"")
    assert folder.names() == ["a", "b"]
    assert folder.folders() == ["sub"]
    assert folder.child("sub").names() == ["c"]
    assert folder.names("absent") == []


def test_reading_or_removing_what_is_absent_is_no_error(folder: Folder) -> None:
    assert folder.read("a") is None
    folder.remove("a")
    assert not folder.exists("a")
    with pytest.raises(FileNotFoundError):
        folder.read_range("a", 0, 1)
