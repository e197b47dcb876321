"""One Spark session a module, for any number of chains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.generated.lab import Lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    from tests.generated import by_value
    from tests.generated.lab import Lab
    from tests.generated.session import made_session

    by_value.register()
    folder = tmp_path_factory.mktemp("lab")
    session = made_session(folder)
    yield Lab(session, folder)
    session.stop()
