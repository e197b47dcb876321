"""What is shipped for tests: conformance suites to inherit, a simulation of the protocol, fakes."""

from __future__ import annotations

import sys

if "pytest" in sys.modules:
    # Or a suite that fails in your project would say AssertionError and not what was found. Before they are imported.
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{kind}_conformance" for kind in ("output_mode", "record_store", "sink", "source")),
        *(f"{__name__}.{kind}_harness" for kind in ("sink", "source")),
    )
