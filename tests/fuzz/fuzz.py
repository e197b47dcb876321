"""Try inputs on the decoders: ``python -m tests.fuzz.fuzz --seconds 60 [TARGET ...]``. See docs/security.md.

Inputs are the whole ones of each target and those of ``corpus/``, changed at random. What breaks a decoder is written
into the folder that ``--found`` names, under the target's name; a copy of it in ``corpus/`` is tried ever after.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_ckpt.errors import CkptError
from tests.fuzz.targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
_SECONDS_EACH = 10
_MOST_MEMORY = 4 << 30
_PUT_IN = (b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"[" * 5000, b"9" * 400)
_NASTY: list[Any] = [None, True, -1, 0, 2**63, 10**400, 1.5, float("inf"), "", "x", "\ud800", [], {}, [[]], {"": None}]


class TooSlowError(BaseException):
    """An input took longer than any should."""


def corpus(name: str) -> list[bytes]:
    """The inputs that are kept of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def wrong(target: Target, data: bytes) -> str | None:
    """What is wrong with the way in which ``data`` is taken; None if a value or an error of ours comes out."""
    signal.alarm(_SECONDS_EACH)
    try:
        target.decode(data)
    except CkptError:
        return None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "".join(traceback.format_exception(error)[-4:])
    finally:
        signal.alarm(0)
    return None


def changed(data: bytes, rng: random.Random, target: Target, others: list[bytes]) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = _other_json(data, rng) if target.is_json and rng.random() < 0.6 else _other_bytes(data, rng, others)
    return data


def _other_bytes(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    at, to = sorted(rng.randint(0, len(data)) for _ in range(2))
    how = rng.randrange(6)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + data[to:]
    if how == 2:
        return data[:to] + data[at:]
    if how == 3:
        return data[:at] + rng.choice(others)[at:]
    if how == 4:
        return data[:at] + rng.choice(_PUT_IN) + data[at:]
    one = bytearray(data)
    for _ in range(rng.randint(1, 4) if one else 0):
        one[rng.randrange(len(one))] = rng.randrange(256)
    return bytes(one)


def _other_json(data: bytes, rng: random.Random) -> bytes:
    """One value in one of its lines is another, or gone, or there twice over."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = _other_line(lines[at], rng)
    return b"\n".join(lines)


def _other_line(data: bytes, rng: random.Random) -> bytes:
    try:
        value = json.loads(data)
        places = list(_places(value))
        if not places:
            return data
        holder, key = rng.choice(places)
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice((*_NASTY, rng.choice(places)[0]))
        return json.dumps(value).encode()
    except (ValueError, RecursionError):
        return data


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from _places(inner)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("targets", nargs="*", default=list(TARGETS))
    options.add_argument("--seconds", type=float, default=1.0, help="of each target")
    options.add_argument("--inputs", type=int, default=10**12, help="of each target, at most")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--found", type=Path, required=True)
    asked = options.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    return sum(_fuzz(name, asked) for name in asked.targets) and 1


def _too_slow(*_: Any) -> None:
    raise TooSlowError


def _fuzz(name: str, asked: argparse.Namespace) -> int:
    """How many kinds of mistakes were found in the target ``name``."""
    target, rng = TARGETS[name], random.Random(f"{name} {asked.seed}")
    kept = [*target.seeds(), *corpus(name)]
    last = asked.found / f"{name}-last"
    ends, count, kinds = time.monotonic() + asked.seconds, 0, set[str]()
    for data in _inputs(kept, rng, target):
        if count >= len(kept) and (time.monotonic() > ends or count >= asked.inputs + len(kept)):
            break
        count += 1
        last.write_bytes(data)  # what a crash of the whole process leaves
        said = wrong(target, data)
        kind = "" if said is None else " ".join(said.splitlines()[-3:])[:120]
        if said is not None and kind not in kinds:
            kinds.add(kind)
            path = asked.found / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            sys.stdout.write(f"{path}\n{said}\n")
    last.unlink()
    sys.stdout.write(f"{name}: {count} inputs, {len(kinds)} kinds of mistakes\n")
    sys.stdout.flush()
    return len(kinds)


def _inputs(kept: list[bytes], rng: random.Random, target: Target) -> Iterator[bytes]:
    yield from kept
    while True:
        yield changed(rng.choice(kept), rng, target, kept)


if __name__ == "__main__":
    sys.exit(main())
