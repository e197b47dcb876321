"""Kills a job again and again, and what it stands on, at random times of one seed, while its input goes on growing.

A *life* is one start of the job. In it a few blows fall that it may survive (a Python worker, an executor, the
database, the clock), and then one that ends it: the driver, its JVM or all of it is killed, it is halted until a
successor has taken over, or a disk is full. Then it is started again, by the same command.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spark_ckpt.errors import CkptError
from tests.cluster.standalone import EXECUTORS, Cluster
from tests.kill.processes import Session, await_condition, environment
from tests.postgres_server import PostgresServer
from tests.soak.chaos_checks import ChaosJob
from tests.soak.chaos_data import SOURCES, Feed
from tests.soak.chaos_life import Life, role
from tests.soak.chaos_places import Clock, Disk

DEADLINE_S = 1800.0
"""Of a start and its first checkpoint, on a machine that has other work, too."""
SCRIPT = Path(__file__).with_name("chaos_job.py")
_AHEAD = 6
_START_S = (0.0, 15.0)
_SPARKS_FENCES = ("Multiple streaming queries are concurrently using", "CONCURRENT_STREAM_LOG_UPDATE")
"""What Spark tells a driver that was halted where its log is written next, and not ours."""
_CLOCKS = ("+0", "+3600", "-3600", "+90", "-90", "+86400", "-86400")
_LEFT_BYTES = (0, 0, 4096, 32 << 10, 200 << 10)


class Deck:
    """Deals its cards in random order, all of them before any comes again."""

    def __init__(self, rng: random.Random, *cards: str) -> None:
        self._rng, self._cards, self._left = rng, cards, list[str]()

    def deal(self) -> str:
        if not self._left:
            self._left = self._rng.sample(self._cards, len(self._cards))
        return self._left.pop()


@dataclass
class Chaos:
    """``cluster``: for lives on a standalone cluster. ``disks``: small file systems, if they can be mounted."""

    folder: Path
    server: PostgresServer
    cluster: Cluster
    disks: list[Disk]
    wanted: int
    seed: int
    say: Callable[[str], None]
    blows: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = rng = random.Random(self.seed)
        full = ["disk"] * min(2, len(self.disks))
        self._places = Deck(rng, "local", "local", "cluster", "clock")
        self._blows = Deck(rng, "worker", "worker", "worker", "database")
        self._fates = Deck(rng, "driver", "driver", "jvm", "jvm", "machine", "halt", *full)
        self._full = Deck(rng, *(d.path.name for d in self.disks))
        self.feed = Feed(self.folder / "input", self.seed)
        self.job = ChaosJob(self.folder, self.server.new_database(), self.feed)
        self._began = time.monotonic()
        self._lives: list[Life] = []
        self._read = dict.fromkeys(SOURCES, 0)
        self._fruitless = 0

    @property
    def kills(self) -> int:
        return sum(n for what, n in self.blows.items() if what in ("driver", "jvm", "machine", "worker", "executor",
                                                                   "database"))  # fmt: skip

    # -- the whole -----------------------------------------------------------------------------------------------

    def run(self) -> dict[str, int]:
        try:
            while self.kills < self.wanted:
                self._live(self._start(self._places.deal()))
            self._finish()
            self._all_gone()
            return self.job.check_end()
        finally:
            for life in self._lives:
                life.session.kill()

    def _live(self, life: Life) -> None:
        before, fate = self.job.committed(), self._fates.deal()
        early = fate in ("driver", "jvm", "machine") and self._rng.random() < 0.2
        if early:
            self._pause(self._rng.uniform(*_START_S), lambda: life.ended)
        elif self._progress(life):
            for _ in range(self._rng.choice((2, 3, 4, 5))):
                self._blow(life)
            if fate == "halt" and life.cluster is None and not life.ended:
                life = self._halt(life)
                fate = "machine"
        if life.ended:
            self._told(life)
        else:
            self._end(life, "machine" if fate == "halt" else fate)
        self._not_stuck(life, before, early)

    def _finish(self) -> None:
        life = self._start("local", end=True)
        await_condition("the end of the input", lambda: life.ended, DEADLINE_S)  # which grows no more
        assert life.ended, f"the last start did not come to its end: {life.said()[-6000:]}"
        assert life.session.process.returncode == 0, life.said()[-6000:]

    # -- blows it may survive --------------------------------------------------------------------------------------

    def _blow(self, life: Life) -> None:
        what = self._blows.deal()
        if life.cluster is not None and what == "worker" and self._rng.random() < 0.6:
            what = "executor"
        if life.clock is not None and self._rng.random() < 0.5:
            life.clock.step(step := self._rng.choice(_CLOCKS))
            self._say(life, "clock", step)
        self._pause(self._rng.uniform(0, 4), lambda: life.ended)
        if life.ended:
            return
        if what == "database":
            self.server.kill()
            self._say(life, what)
            self._pause(self._rng.uniform(0, 3))
            self.server.restart()
        else:
            self._kill_one(life, what)
        self._progress(life)

    def _kill_one(self, life: Life, what: str) -> None:
        found = life.victims(what)
        if what == "worker" and self._rng.random() < 0.6:
            # Spark starts a task again, but not the processes of sources and of the commit, whose end is the query's.
            found = [p for p in found if role(p) == "worker"] or found
        if found:
            victim = self._rng.choice(found)
            name = role(victim) if what == "worker" else ""
            with contextlib.suppress(Exception):
                victim.kill()
                self._say(life, what, name)

    # -- blows that end it -----------------------------------------------------------------------------------------

    def _end(self, life: Life, fate: str) -> None:
        self._pause(self._rng.uniform(0, 4), lambda: life.ended)
        if fate == "disk":
            self._fill(life)
            fate = "machine"
        if not life.ended:
            for victim in life.victims(fate):
                with contextlib.suppress(Exception):
                    victim.kill()
            self._say(life, fate)
        if fate == "machine":
            life.session.kill()
            self._check(life)
        # Else what is left of it may still be at work when its successor starts.

    def _fill(self, life: Life) -> None:
        name = self._full.deal()
        disk = next(d for d in self.disks if d.path.name == name)
        disk.fill(left := self._rng.choice(_LEFT_BYTES))
        self._say(life, "disk", f"{name}, {left} bytes left")
        self._pause(25, lambda: life.ended)
        disk.make_room()
        if life.ended:
            self._told(life)

    def _halt(self, life: Life) -> Life:
        """It moves on when a successor runs; returns the successor."""
        life.halt()
        self._say(life, "halt")
        newer, before = self._start("local"), self.job.committed()
        self._pause(DEADLINE_S, lambda: newer.ended or self.job.committed() > before + self._rng.randrange(3))
        life.session.resume()
        self._say(newer, "resume", f"of life {life.number}")
        self._pause(DEADLINE_S, lambda: life.ended)
        assert life.ended, f"a driver that was fenced runs on: {life.said()[-6000:]}"
        said = life.said()
        fenced = "FencedError" in said
        assert fenced or any(told in said for told in _SPARKS_FENCES), f"not told that it is fenced: {said[-6000:]}"
        self.ends["fenced" if fenced else "fenced by Spark's log"] += 1
        life.session.kill()
        self._told(life)
        return newer

    # -- a start, and what comes of it -------------------------------------------------------------------------------

    def _start(self, place: str, end: bool = False) -> Life:
        number = len(self._lives) + 1
        scratch = self.folder / f"tmp-{number}"
        scratch.mkdir()
        clock = Clock(scratch) if place == "clock" else None
        cluster = self.cluster if place == "cluster" else None
        plan = {
            "dir": str(self.folder), "tmp": str(scratch), "input": str(self.feed.folder), "end": end,
            "location": str(self.folder / "location"), "sinks": self.job.sinks,
            "master": self.cluster.url if cluster else "local[2,4]",
            "conf": {
                **(EXECUTORS if cluster else {}), "spark.ckpt.interval": "500ms",
                "spark.ckpt.tolerableFailures": "2", "spark.ckpt.triggerPollInterval": "200ms",
            },
        }  # fmt: skip
        env = environment(TMPDIR=str(scratch))
        env = clock.environment(env) if clock else env
        session = Session([sys.executable, str(SCRIPT), json.dumps(plan)], self.folder / f"log-{number}", env)
        life = Life(number, session, cluster, clock)
        self._lives.append(life)
        self._say(life, "start", place)
        return life

    def _progress(self, life: Life) -> bool:
        """Wait until a checkpoint of it is committed. False if it ended."""
        before = self.job.committed()
        self._pause(DEADLINE_S, lambda: life.ended or self.job.committed() > before)
        assert life.ended or self.job.committed() > before, f"life {life.number} hangs: {life.said()[-6000:]}"
        return not life.ended

    def _not_stuck(self, life: Life, before: int, early: bool) -> None:
        idle = life.ended and self.job.committed() == before and not early
        self._fruitless = self._fruitless + 1 if idle else 0
        assert self._fruitless < 8, f"eight starts in a row came to nothing: {life.said()[-6000:]}"

    def _check(self, life: Life) -> None:
        self.job.check_said(life.said())
        counts = self.job.check_so_far()
        self.say(f"      rows so far: {counts}")
        assert self.job.job.verify() == []

    def _told(self, life: Life) -> None:
        error = life.last_error()
        self.ends[error.split(":")[0]] += 1
        self.say(f"      life {life.number} ended: {error}")
        self.job.check_said(life.said())
        if life.ended:
            life.session.kill()
            shutil.rmtree(self.folder / f"tmp-{life.number}", ignore_errors=True)

    def _all_gone(self) -> None:
        """Of drivers that were killed nothing lives on, with nobody's help."""
        for life in self._lives:
            self._pause(120, lambda life=life: not life.session.members())  # type: ignore[misc]
            left = [" ".join(p.cmdline()) for p in life.victims("machine")]
            assert left == [], f"of life {life.number}: {left}"
            self.job.check_said(life.said())

    # -- meanwhile -----------------------------------------------------------------------------------------------

    def _pause(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self._feed()
            time.sleep(0.1)

    def _feed(self) -> None:
        """Some files ahead of what is committed, so that there is always something to do."""
        with contextlib.suppress(CkptError, OSError):
            newest = self.job.job.records.completion(self.job.committed())
            for source, offset in (newest.sources if newest else {}).items():
                self._read[source] = int(offset["inner"]["file"])
        for source in SOURCES:
            if self.feed.count[source] < self._read[source] + _AHEAD:
                self.feed.add(source)

    def _say(self, life: Life, what: str, more: str = "") -> None:
        self.blows[what] += 1
        at, checkpoint = time.monotonic() - self._began, self.job.committed()
        self.say(f"{self.kills:4} {at:7.1f} s  life {life.number:3}  {what:9} checkpoint {checkpoint:4}  {more}")
