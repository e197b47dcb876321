"""The comparison of sinks and folder for the plain plugin, whose start does not know its sinks. Driver."""

from __future__ import annotations

from spark_ckpt import clock
from spark_ckpt.errors import RetryableError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, sink_place
from spark_ckpt.protocol.records import CompletionRecord, VoidRecord
from spark_ckpt.protocol.setback import is_accepted, refuse_set_back, refuse_staged_before, set_back, shown_by
from spark_ckpt.sinks.together import ask_sinks
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.retry import Retry


def compare_sinks(run: RunSpec, sinks: tuple[SinkSpec, ...]) -> None:
    """Once in each process of a start that writes, before it commits anything. Facts first, so that a sink shows at
    least what they say.

    Raises as a start of the library does, and ``RetryableError`` where the next start can go on.
    """
    records = JobRecords(run.url, run.config)
    completions, known = records.completions(), records.newest_known()
    at = _newest_of(run, completions)
    confirmed = at is not None and at.checkpoint in records.confirmed([at.checkpoint])
    expected = shown_by(at, run.life, confirmed, records.abandoned_pairs())
    place = sink_place(run.config, run.job)
    made = {spec.id: spec.make(place) for spec in sinks}
    found = ask_sinks(run.identity, made, Retry.of(run.config))
    differ = set_back(expected, known, found)
    accepted = records.accepted()
    refused = [d for d in differ if not is_accepted(d, accepted)]
    if refused:
        raise refuse_set_back(run.job, refused, completions, found).error()
    gone = refuse_staged_before(run.job, differ, accepted, records.batches(run.origin), at.checkpoint if at else 0)
    if gone is not None:
        raise gone.error()
    ahead = max((d.found for d in differ if d.is_ahead), default=None)
    if ahead is not None:
        # Its reader has begun to count where the folder stood, and the sink knows these ids with other rows.
        void = VoidRecord(ahead, run.generation, clock.now_ms())
        records.store.create(JobPaths.checkpoint(ahead), "checkpoint", void.to_json())
        raise RetryableError(f"job {run.job!r}: ids up to {ahead} count as taken now, as accepted; start it again")


def _newest_of(run: RunSpec, completions: list[CompletionRecord]) -> CompletionRecord | None:
    own = [c for c in completions if c.origin == run.origin]
    restored = next((c for c in completions if c.checkpoint == run.restored_from), None)
    return max(own, key=lambda c: c.checkpoint, default=restored)
