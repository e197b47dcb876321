from __future__ import annotations

import pytest

pytest.register_assert_rewrite("spark_ckpt.testing.sink_conformance", "spark_ckpt.testing.sink_harness")
