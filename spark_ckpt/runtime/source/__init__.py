"""The source's side: what is read, and which barriers go into it."""

from __future__ import annotations
