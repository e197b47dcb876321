"""Keyed operators as parts of a Spark plan, and what becomes of single nodes: for both translations. Driver."""
