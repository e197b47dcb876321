"""One Spark session for the tests of this folder, for any number of chains and queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.shared_session import shared

if TYPE_CHECKING:
    from tests.generated.lab import Lab

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    from tests.generated import by_value
    from tests.generated.lab import Lab
    from tests.generated.session import made_session

    by_value.register()
    folder = tmp_path_factory.mktemp("lab")
    return Lab(shared(HERE, lambda: made_session(folder)), folder)
