"""Where everything of a job is below its folder. The one module that puts such a path together, or takes one apart.

A savepoint's folder is laid out alike, with ``savepoint.json`` and ``claim.json``, and without the records of a running
job.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote

RecordFolder = Literal[
    "generations",
    "triggers",
    "batches",
    "checkpoints",
    "copies",
    "committed",
    "aborted",
    "abandoned",
    "accepted",
    "plans",
    "approved",
    "requests",
    "answers",
    "drained",
    "alive",
    "ended",
    "failing",
    "manifests",
    "uses",
]

JOB_RECORD = "job.json"
SINKS_RECORD = "sinks.json"
STATISTICS_RECORD = "statistics.json"
SAVEPOINT_RECORD = "savepoint.json"
CLAIM_RECORD = "claim.json"
PAUSED_RECORD = "paused.json"


class JobPaths:
    """``url`` is the job's folder. What is static is relative to it, as record stores take it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    # -- tables and folders, by URL ----------------------------------------------------------------------------

    @property
    def history(self) -> str:
        """The Delta table of the job's checkpoints."""
        return f"{self.url}/history"

    @property
    def spark(self) -> str:
        """Spark's own folder, if the user names no other."""
        return f"{self.url}/spark"

    @staticmethod
    def is_spark(folder: str) -> bool:
        """Whether ``folder``, of the job's folder, is one of Spark's, by default or of a query that had changed."""
        return re.fullmatch(r"spark(-\d+)?", folder) is not None

    @property
    def states(self) -> str:
        return f"{self.url}/state"

    def state(self, uid: str) -> str:
        """The state table of operator ``uid``."""
        return f"{self.url}/{self.state_file(uid)}"

    @property
    def sources(self) -> str:
        return f"{self.url}/sources"

    def source(self, uid: str) -> str:
        """What source ``uid`` needs to understand its offsets."""
        return f"{self.url}/{self.source_file(uid)}"

    @property
    def deliveries(self) -> str:
        """Rows that wait for functions of the user's process."""
        return f"{self.url}/deliveries"

    @property
    def memory(self) -> str:
        """Rows of a sink ``memory`` that names no folder."""
        return f"{self.url}/memory"

    @property
    def staged(self) -> str:
        """What sinks keep here of rows that wait for their checkpoint."""
        return f"{self.url}/staged"

    @property
    def manifests(self) -> str:
        return f"{self.url}/manifests"

    # -- records -----------------------------------------------------------------------------------------------

    @staticmethod
    def generation(number: int) -> str:
        return f"generations/{id_name(number)}"

    @staticmethod
    def trigger(checkpoint: int) -> str:
        return f"triggers/{id_name(checkpoint)}"

    @staticmethod
    def checkpoint(checkpoint: int) -> str:
        return f"checkpoints/{id_name(checkpoint)}"

    @staticmethod
    def copy(checkpoint: int, generation: int) -> str:
        """Of each generation that is about to create ``checkpoints/K``."""
        return f"copies/{checkpoint:010d}-{generation:010d}.json"

    @staticmethod
    def committed(checkpoint: int) -> str:
        return f"committed/{id_name(checkpoint)}"

    @staticmethod
    def aborted(checkpoint: int) -> str:
        return f"aborted/{id_name(checkpoint)}"

    @staticmethod
    def abandoned(checkpoint: int, sink: str) -> str:
        return f"abandoned/{checkpoint:010d}-{quote(sink, safe='')}.json"

    @staticmethod
    def failing(sink: str) -> str:
        return f"failing/{quote(sink, safe='')}.json"

    @staticmethod
    def accepted(checkpoint: int, sink: str) -> str:
        return f"accepted/{checkpoint:010d}-{quote(sink, safe='')}.json"

    @staticmethod
    def plan(generation: int) -> str:
        """What the start of ``generation``, which waits, would make of the job."""
        return f"plans/{id_name(generation)}"

    @staticmethod
    def approved(generation: int) -> str:
        return f"approved/{id_name(generation)}"

    @staticmethod
    def batch(name: str) -> str:
        """``name``: :attr:`spark_ckpt.protocol.records.BatchRecord.name`."""
        return f"batches/{name}.json"

    @staticmethod
    def request(request: str) -> str:
        return f"requests/{request}.json"

    @staticmethod
    def answer(request: str) -> str:
        return f"answers/{request}.json"

    @staticmethod
    def drained(generation: int, source: str) -> str:
        return f"drained/{generation:010d}-{source}.json"

    @staticmethod
    def alive(generation: int) -> str:
        return f"alive/{id_name(generation)}"

    @staticmethod
    def ended(generation: int) -> str:
        return f"ended/{id_name(generation)}"

    @staticmethod
    def manifests_of(uid: str) -> str:
        """The folder of the manifests of operator ``uid``."""
        return f"manifests/{uid}"

    @staticmethod
    def manifest(uid: str, checkpoint: int, token: str) -> str:
        """``token`` tells attempts apart."""
        return f"manifests/{uid}/{checkpoint:010d}-{token}.json"

    @staticmethod
    def listed(folder: RecordFolder, name: str) -> str:
        """A record by its name as the record store lists it."""
        return f"{folder}/{name}"

    # -- other files -------------------------------------------------------------------------------------------

    @staticmethod
    def state_file(uid: str, *file: str) -> str:
        return "/".join(("state", uid, *file))

    @staticmethod
    def source_file(uid: str, *file: str) -> str:
        return "/".join(("sources", uid, *file))


def id_name(number: int) -> str:
    """Ids sort as text."""
    return f"{number:010d}.json"


def id_of(name: str) -> int | None:
    """The id of the record ``name``; None for what is none of ours."""
    stem = name.split(".")[0]
    return int(stem) if stem.isdigit() else None


def batch_of(name: str) -> tuple[int, int, int]:
    """(origin, batch, generation) of the batch record ``name``."""
    origin, batch, generation = name.split(".")[0].split("-")
    return int(origin), int(batch), int(generation)


def checkpoint_of(name: str) -> int | None:
    """That of ``abandoned/K-sink`` and ``copies/K-g``; None for what is none of ours."""
    return id_of(name.split("-")[0])


def drained_of(name: str) -> tuple[int, str]:
    """(generation, source) of a record in ``drained/``."""
    generation, source = name.removesuffix(".json").split("-", 1)
    return int(generation), source


def request_of(name: str) -> str:
    """The id of a record in ``requests/`` or ``answers/``."""
    return name.removesuffix(".json")
