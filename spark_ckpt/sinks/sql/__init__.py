"""The sink ``sql``: SQLite, PostgreSQL, MariaDB and MySQL."""

from __future__ import annotations
