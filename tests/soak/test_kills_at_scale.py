"""A job with everything in it is killed a hundred times, halted, starved of room and of time: its result is exact.

``make soak PYTEST_ARGS="tests/soak/test_kills_at_scale.py -s" KILLS=100 SEED=7`` prints every round.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.cluster.standalone import standalone_cluster
from tests.postgres_server import PostgresServer
from tests.soak.chaos import Chaos
from tests.soak.chaos_places import Disk, can_mount

KILLS = int(os.environ.get("KILLS", "100"))
SEED = int(os.environ.get("SEED", "1"))


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_a_hundred_kills_lose_and_double_nothing_and_leave_nothing(tmp_path: Path) -> None:
    rounds = (tmp_path / "rounds").open("a", buffering=1)

    def say(line: str) -> None:
        print(line, flush=True)  # noqa: T201
        rounds.write(f"{line}\n")

    with contextlib.ExitStack() as stack:
        stack.callback(rounds.close)
        places = [Disk(tmp_path / name) for name in ("jobs", "location", "sinks")]
        disks = [stack.enter_context(d.mounted()) for d in places] if can_mount() else []
        server = PostgresServer().start()
        stack.callback(server.stop)
        (tmp_path / "cluster").mkdir()
        cluster = stack.enter_context(standalone_cluster(tmp_path / "cluster"))
        chaos = Chaos(tmp_path, server, cluster, disks, KILLS, SEED, say)
        found = chaos.run()
        say(f"{chaos.kills} kills, {dict(chaos.blows)}; ends {dict(chaos.ends)}; all equal: {found}")
    assert chaos.kills >= KILLS
