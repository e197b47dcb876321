from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kill.fixtures import make_job

if TYPE_CHECKING:
    from tests.cluster.standalone import Cluster

__all__ = ["make_job"]

pytest.register_assert_rewrite("tests.kill.killed")  # before its first import


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster with room for two executors."""
    from tests.cluster.standalone import standalone_cluster

    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
