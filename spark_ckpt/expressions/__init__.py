"""Spark's expressions over Arrow batches: what a filter or a computed column says, where the rows are.

Every function here gives Spark's result for every value it may get, nulls, NaN, overflow and errors included;
``tests/spark/test_expressions.py`` holds each against Spark. What cannot be the same is not here: Spark computes it.
Runs on executors; needs Arrow and NumPy only.
"""
