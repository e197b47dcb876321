"""What a job's folder and its Delta sinks have that nothing names, found past the code that removes it: any URL."""

from __future__ import annotations

from typing import Any

import fsspec
import sqlalchemy as sa
from deltalake import DeltaTable

import spark_ckpt
from spark_ckpt.jobs.job import Job
from spark_ckpt.storage.manifest import read_manifest


def collected(url: str, name: str, database: str) -> Job:
    """The job ``name`` below ``url``, which is stopped: whole, and behind ``gc``.

    Nothing else finds what a task staged that died before the driver heard of it.
    """
    job, left_out = spark_ckpt.job(url, name).with_recorded_sinks({"sql.url": database})
    assert left_out == ()
    assert job.verify() == []
    print(f"gc removed {job.gc()}")  # noqa: T201
    assert job.gc() == [], "the first one removed all"
    return job


def unnamed_files(job: Job, url: str, *sinks: str) -> list[str]:
    """Of the job, which is stopped and collected, below ``url``: state files, manifests, and files of the Delta tables
    ``sinks``, to which it only appends."""
    done, found = job.completed(), list[str]()
    for uid in {uid for record in done for uid in record.tables}:
        manifests = [read_manifest(job.records.store, r.tables[uid].manifest) for r in done if uid in r.tables]
        named = set().union(*(m.files for m in manifests))
        there = {name for name in _files(f"{url}/state/{uid}") if not name.startswith("_ckpt/content-")}
        assert named <= there, f"lost: {named - there}"
        found += [f"state/{uid}/{name}" for name in there - named]
    manifests_named = {t.manifest for record in done for t in record.tables.values()}
    found += sorted({f"manifests/{name}" for name in _files(f"{url}/manifests")} - manifests_named)
    for sink in sinks:
        logged = {uri.rsplit("/", 1)[-1] for uri in DeltaTable(sink).file_uris()}
        found += [f"{sink}/{name}" for name in _files(sink) if name not in logged]
    return found


def staged_rows(database: str) -> dict[str, int]:
    """Of PostgreSQL: rows in staging tables and in the register of stages, and prepared transactions."""
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    tables = [t for t in sa.inspect(engine).get_table_names() if "__ckpt_" in t or t == "spark_ckpt_stages"]
    with engine.connect() as connection:
        found = {t: connection.execute(sa.text(f'select count(*) from "{t}"')).scalar_one() for t in tables}
        found["prepared"] = connection.execute(sa.text("select count(*) from pg_prepared_xacts")).scalar_one()
    return {name: count for name, count in found.items() if count}


def objects_with(secret: str, url: str) -> list[str]:
    """Those below ``url`` that contain ``secret``."""
    files, root = _place(url)
    return [path for path in files.find(root) if secret.encode() in files.cat_file(path)]


def _files(url: str) -> set[str]:
    """Names below ``url``, a Delta log aside."""
    files, root = _place(url)
    names = (path[len(root) :].lstrip("/") for path in files.find(root))
    return {name for name in names if not name.startswith("_delta_log/")}


def _place(url: str) -> tuple[Any, str]:
    files, root = fsspec.core.url_to_fs(url)
    files.invalidate_cache()
    return files, root.rstrip("/")
