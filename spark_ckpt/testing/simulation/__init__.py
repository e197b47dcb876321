"""The protocol under random crashes, with the code that production runs."""

from __future__ import annotations
