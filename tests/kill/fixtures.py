"""Fixtures for the tests that run and kill a whole job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.postgres_server import shared_server

if TYPE_CHECKING:
    from tests.kill.killed import KilledJob


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., KilledJob]:
    """A new job in a new folder, writing to a new database of a real PostgreSQL and to a Delta table."""
    from tests.kill.killed import KilledJob

    def make(merging: str, **plan: Any) -> KilledJob:
        return KilledJob(tmp_path, shared_server().new_database(), merging, **plan)

    return make
