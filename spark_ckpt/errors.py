"""The error tree, branched by what the caller should do next.

Every error survives pickling (Spark carries them between processes) and its message names what was expected,
what was found and what to do.
"""

from __future__ import annotations

RESTORE_ANOTHER = (
    "put back a good copy, or restore another checkpoint: set spark.ckpt.restore=<id> ('spark-ckpt list' shows them)"
    " and a new, empty checkpointLocation"
)
"""What works when something that a checkpoint needs is lost; for the end of a message."""


def writable(text: str) -> str:
    r"""``text`` as UTF-8 can hold it: a byte of a file's name that is no UTF-8 becomes ``\\udcff`` or such."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class CkptError(Exception):
    """Root of every error this library raises on purpose. Its message is always :func:`writable`."""

    def __init__(self, *args: object) -> None:
        # Spark sends messages as UTF-8. For one that cannot be encoded it sends nothing, and the query hangs.
        super().__init__(*(writable(arg) if isinstance(arg, str) else arg for arg in args))


class RetryableError(CkptError):
    """Nothing is lost and nothing is wrong with the input: start the query again."""


class CheckpointFailedError(RetryableError):
    """More checkpoints failed in a row than ``spark.ckpt.tolerableFailures`` allows."""


class StorageUnavailableError(RetryableError):
    """Storage failed in a way that may pass, for longer than ``spark.ckpt.retry.timeout``."""


class FencedError(CkptError):
    """A newer generation owns the job. Stop this query; do not retry it."""


class InvalidInputError(CkptError):
    """The user's configuration, query, schema or data must be changed first."""


class RefusedError(InvalidInputError):
    """A sink's target does not take rows of a checkpoint. Nothing of the checkpoint is visible anywhere."""


class BadRowError(InvalidInputError):
    """A sink's target does not take a row for what is in it. With its option ``rejects`` such rows go elsewhere."""

    rule: str | None = None
    """The constraint or index, where the target names it."""


class ConfigError(InvalidInputError):
    """A ``spark.ckpt.*`` key or option is unknown or malformed."""


class TopologyError(InvalidInputError):
    """The query's uids, operators or state schemas do not fit together or do not fit the restored checkpoint."""


class ControlColumnsError(InvalidInputError):
    """A plain DataFrame operation lost the control columns."""


class BadRecordError(InvalidInputError):
    """A source met data it cannot read."""


class UserFunctionError(InvalidInputError):
    """A user's function raised or returned the wrong schema; the message names uid, key group and checkpoint."""


class ExpressionError(InvalidInputError):
    """A filter or a computed column met a value for which it fails in Spark, too, such as a sum out of range."""


class NewerFormatError(InvalidInputError):
    """A newer version of spark-ckpt wrote it. Nothing is damaged: use that version, or a newer one."""


class StorageNotWritableError(InvalidInputError):
    """The job's folder cannot be written, or it belongs to another job."""


class CorruptStorageError(CkptError):
    """A record, manifest or state file is damaged or missing. Nothing is guessed: restore another checkpoint."""


class ProtocolBugError(CkptError):
    """An invariant of the protocol does not hold. Please report it; nothing was committed on top of it."""
