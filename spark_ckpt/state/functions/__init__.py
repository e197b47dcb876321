"""What computes on keyed state: the contract, and users' functions behind it."""

from __future__ import annotations
