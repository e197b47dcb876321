"""``transformWithState`` and ``transformWithStateInPandas``: a user's ``StatefulProcessor`` over families of rows."""

from __future__ import annotations
