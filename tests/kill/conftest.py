from __future__ import annotations

import pytest

from tests.kill.fixtures import make_job

__all__ = ["make_job"]

pytest.register_assert_rewrite("tests.kill.killed")  # before its first import
