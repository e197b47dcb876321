"""One Spark session for the tests of this folder, for any number of chains and queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.generated.lab import Lab

HERE = Path(__file__).parent

_session: Any = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """The session ends with the last test of this folder: others make theirs, with other settings and jars."""
    global _session
    yield
    if _session is not None and (nextitem is None or HERE not in nextitem.path.parents):
        _session.stop()
        _session = None


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    global _session
    from tests.generated import by_value
    from tests.generated.lab import Lab
    from tests.generated.session import made_session

    by_value.register()
    folder = tmp_path_factory.mktemp("lab")
    _session = _session or made_session(folder)
    return Lab(_session, folder)
