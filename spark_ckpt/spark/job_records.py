"""The records of one job's folder, typed. Driver (reader process, commit process and the user's own)."""

from __future__ import annotations

from spark_ckpt.config import JobConfig
from spark_ckpt.protocol.life import life_of
from spark_ckpt.protocol.records import (
    AbortedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    GenerationRecord,
    TriggerRecord,
    VoidRecord,
    checkpoint_from_json,
)
from spark_ckpt.storage.record_store import Created, RecordStore


def id_name(number: int) -> str:
    """Ids sort as text."""
    return f"{number:010d}.json"


class JobRecords:
    """Reads and writes records by their id. Damaged ones raise ``CorruptStorageError``."""

    def __init__(self, url: str, config: JobConfig) -> None:
        self.store = RecordStore(url, config.storage_options())

    # -- ids ---------------------------------------------------------------------------------------------------

    def ids(self, folder: str) -> list[int]:
        return [int(name.split(".")[0]) for name in self.store.names(folder) if name.split(".")[0].isdigit()]

    def newest_id(self) -> int:
        """The largest checkpoint id ever used; 0 if none was."""
        return max([0, *self.ids("triggers"), *self.ids("checkpoints"), *self.ids("aborted")])

    # -- generations -------------------------------------------------------------------------------------------

    def generations(self) -> list[GenerationRecord]:
        found = (self.generation(g) for g in self.ids("generations"))
        return [g for g in found if g is not None]

    def life(self) -> str:
        """The mark of the job's life; empty if it has none."""
        return life_of(self.generations(), self.completions()) or ""

    def generation(self, number: int) -> GenerationRecord | None:
        path = f"generations/{id_name(number)}"
        body = self.store.read(path, "generation")
        return None if body is None else GenerationRecord.from_json(body, path)

    def create_generation(self, record: GenerationRecord) -> bool:
        path = f"generations/{id_name(record.generation)}"
        return isinstance(self.store.create(path, "generation", record.to_json()), Created)

    # -- checkpoints -------------------------------------------------------------------------------------------

    def trigger(self, checkpoint: int) -> TriggerRecord | None:
        path = f"triggers/{id_name(checkpoint)}"
        body = self.store.read(path, "trigger")
        return None if body is None else TriggerRecord.from_json(body, path)

    def create_trigger(self, record: TriggerRecord) -> bool:
        path = f"triggers/{id_name(record.checkpoint)}"
        return isinstance(self.store.create(path, "trigger", record.to_json()), Created)

    def checkpoint(self, checkpoint: int) -> CompletionRecord | VoidRecord | None:
        path = f"checkpoints/{id_name(checkpoint)}"
        body = self.store.read(path, "checkpoint")
        return None if body is None else checkpoint_from_json(body, path)

    def completion(self, checkpoint: int) -> CompletionRecord | None:
        found = self.checkpoint(checkpoint)
        return found if isinstance(found, CompletionRecord) else None

    def completions(self) -> list[CompletionRecord]:
        found = (self.completion(k) for k in self.ids("checkpoints"))
        return [c for c in found if c is not None]

    def committed(self, checkpoint: int) -> CommittedRecord | None:
        path = f"committed/{id_name(checkpoint)}"
        body = self.store.read(path, "committed")
        return None if body is None else CommittedRecord.from_json(body, path)

    def aborted(self, checkpoint: int) -> AbortedRecord | None:
        path = f"aborted/{id_name(checkpoint)}"
        body = self.store.read(path, "aborted")
        return None if body is None else AbortedRecord.from_json(body, path)

    def abort(self, record: AbortedRecord) -> None:
        """The first reason stays."""
        self.store.create(f"aborted/{id_name(record.checkpoint)}", "aborted", record.to_json())

    def settled(self, checkpoint: int) -> bool:
        """Complete, void or aborted: no barrier of it is waited for any more."""
        name = id_name(checkpoint)
        return self.store.exists(f"checkpoints/{name}") or self.store.exists(f"aborted/{name}")

    # -- batches -----------------------------------------------------------------------------------------------

    def batches(self, origin: int | None = None) -> list[BatchRecord]:
        found = []
        for name in self.store.names("batches"):
            if origin is None or int(name.split("-")[0]) == origin:
                body = self.store.read(f"batches/{name}", "batch")
                if body is not None:
                    found.append(BatchRecord.from_json(body, f"batches/{name}"))
        return found
