"""What s3fs asks S3 more often than needed: requests are what an object store's price and latency are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def is_object(fs: Any, path: str) -> bool:
    """One request. Raises ``FileNotFoundError``; ``fs.info`` then lists what is below, too."""
    bucket, key, _ = fs.split_path(path)
    return bool(fs.call_s3("head_object", Bucket=bucket, Key=key))


def listed(fs: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Names in folder ``path`` and whether they are objects; one request for each thousand. Nothing if it is absent:
    ``fs.ls`` then lists the folder above, too, and most folders of records are empty most of the time.

    Raises ``FileNotFoundError`` if there is no such bucket.
    """
    bucket, key, _ = fs.split_path(path)
    prefix = f"{key.rstrip('/')}/" if key else ""
    more: dict[str, str] = {}
    while True:
        page = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", **more)
        yield from ((p["Prefix"][len(prefix) : -1], False) for p in page.get("CommonPrefixes", ()))
        yield from ((o["Key"][len(prefix) :], True) for o in page.get("Contents", ()) if o["Key"] != prefix)
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}
