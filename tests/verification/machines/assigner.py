"""An assigner that is wrong, late or double: it moves partitions between machines as no member should.

It starts workers where others run, two at once, on a machine that is cut off, and too late; and machines are
killed, lost, frozen, cut off and hindered meanwhile. Claims alone decide who owns a partition, so the outputs must be
right whatever it does.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from grete.errors import ExitCode
from tests.verification.chaos.chain import PARTITIONS, Given
from tests.verification.chaos.checker import Checker
from tests.verification.chaos.outside import Outside
from tests.verification.machines.hosted import Hosted, Hosting
from tests.verification.machines.machine import CUT, DEAF, MUTE, WHOLE, Line, Machine
from tests.verification.machines.network import Network

SOURCES = 40
FEED, BACKLOG_MAX = 8, 1000  # records at once, and records given and not yet out
PAUSE_S = 0.05  # between records: 160 a second show what all that the cores can take would show
LIVING_MAX = 9  # workers: more only share the cores
STALL_S = 240.0  # without what must come, while the machines that are left can work; a start from afar takes minutes
DELAY_S_MAX = 1.0  # from the loss of a worker until the assigner notices
WIPED_SHARE = 0.2  # of machines that come back
SOON = ("shutdown_timeout_ms=10000", "rocksdb_bytes=16777216")
INTERVALS_MS, RETENTIONS_MS = (40, 60, 200), (2_000, 60_000)  # of checkpoints, and of changelogs: one is soon too old
TOLD_MAX = 5  # crashes
# What it does, and how often: the first group is its own, the second befalls a machine.
MOVES = {"move": 14, "both": 4, "swap": 4, "blind": 2}
FAULTS = {"kill": 4, "lose": 3, "freeze": 3, "cut": 3, "mute": 2, "deaf": 2, "lossy": 2, "slow": 2, "far": 2}
LINES = {"lose": CUT, "cut": CUT, "mute": MUTE, "deaf": DEAF}
LOSSES, KBITS = (5, 20, 40), (500, 2_000, 10_000)
FARS_MS = (20, 100, 300)  # there, and the same back


class Trouble(NamedTuple):
    """A machine's trouble, and its end."""

    machine: Machine
    kind: str
    until_s: float


class Assigner:
    """``step`` again and again until ``takeovers`` are enough, then ``settle``; ``checker`` has the result."""

    def __init__(
        self,
        network: Network,
        hosting: Hosting,
        outside: Outside,
        rng: random.Random,
        away_s: Sequence[float],
        note: Callable[[str], None],
    ) -> None:
        """``away_s``: how long machines are in trouble, drawn from these."""
        self.machines = list(network.machines.values())
        self.hosting, self.outside, self.checker = hosting, outside, Checker()
        self.tally: Counter[str] = Counter()
        self.takeovers = self.fed = 0
        self._fed_s = 0.0  # when something was fed last
        self.took_s: list[float] = []  # from the start of a worker that takes over until it takes input
        self.owners: dict[int, Machine] = {}  # by partition: where it was taken last
        self._rng, self._away_s, self._note = rng, away_s, note
        self._troubles: list[Trouble] = []
        self._due: dict[int, float] = dict.fromkeys(range(PARTITIONS), 0.0)  # partitions that need a worker, from then
        self._numbers = [0] * SOURCES
        self._counted: set[Hosted] = set()
        self._next_round()

    # --- what goes on all the time ---

    def step(self) -> None:
        """Let all go on for a moment."""
        self.look()
        if self.fed - self.checker.entries < BACKLOG_MAX and time.monotonic() >= self._fed_s + PAUSE_S:
            self._fed_s = time.monotonic()
            self.feed(FEED)
        self._end_troubles()
        self._strike_if_due()

    def look(self) -> None:
        """Take what workers say, start those that are missing, read what came out."""
        for ended in self.hosting.poll():
            self._ended(ended)
        for hosted in self.hosting.living:
            if hosted.took_s is not None and hosted not in self._counted:
                self._took_over(hosted, hosted.took_s)
        now = time.monotonic()
        for partition in range(PARTITIONS):
            if any(hosted.partition == partition and self.usable(hosted.machine) for hosted in self.hosting.living):
                self._due.pop(partition, None)
            elif now >= self._due.setdefault(partition, now + self._rng.uniform(0.0, DELAY_S_MAX)):
                self._start_somewhere(partition)
        for row in self.outside.arrived():
            self.checker.entry(*row)

    def feed(self, count: int) -> None:
        """Give some sources their next inputs, of different sizes."""
        rows = []
        for _ in range(count):
            source = self._rng.randrange(SOURCES)
            self._numbers[source] += 1
            padding = "x" * self._rng.choice((0, 0, 0, 10, 100, 1000))
            rows.append((f"source-{source}".encode(), msgspec.json.encode(Given(self._numbers[source], padding))))
        self.outside.feed(rows)
        self.fed += count

    def usable(self, machine: Machine) -> bool:
        """Whether what runs there gets on, if slowly."""
        return not machine.is_frozen and max(machine.line) < max(CUT)

    def _took_over(self, hosted: Hosted, took_s: float) -> None:
        self._counted.add(hosted)
        if self.owners.get(hosted.partition, hosted.machine) is not hosted.machine:
            self.takeovers += 1
            self.took_s.append(took_s)
        self.owners[hosted.partition] = hosted.machine

    def _ended(self, hosted: Hosted) -> None:
        code = hosted.process.returncode
        expected = {"a stop": (ExitCode.DONE, -signal.SIGTERM), "a kill": (-signal.SIGKILL,)}
        if code == ExitCode.FENCED:
            self.tally["fenced"] += 1
        elif by := [what for what in hosted.ended_by if code in expected[what]]:
            self.tally[f"ended by {by[0]}"] += 1
        elif code == ExitCode.FAILED:
            what = hosted.last_event()
            self.tally[f"crashed: {what}"] += 1
            if self.tally[f"crashed: {what}"] <= TOLD_MAX:
                self._note(f"worker {hosted.partition} on {hosted.machine.name}: {hosted.log}: {hosted.words()}")
        else:
            self.checker.violated(
                f"worker {hosted.partition} on {hosted.machine.name} ended with {code}: {hosted.log}: {hosted.words()}"
            )

    # --- starts ---

    def _start(self, machine: Machine, partition: int) -> bool:
        """Start a worker, unless one of that partition is there, whose stores it would need."""
        if machine.is_frozen or any(each.partition == partition for each in self.hosting.on(machine)):
            return False
        interval, retention = self._rng.choice(INTERVALS_MS), self._rng.choice(RETENTIONS_MS)
        own = [f"checkpoint_interval_ms={interval}", f"changelog_retention_ms={retention}"]
        self.hosting.start(machine, partition, [*own, *SOON])
        return True

    def _start_somewhere(self, partition: int) -> None:
        places = [machine for machine in self.machines if self.usable(machine)]
        self._rng.shuffle(places)
        if any(self._start(machine, partition) for machine in places):
            del self._due[partition]

    # --- strikes ---

    def _next_round(self) -> None:
        self._mode = self._rng.choice(("haste", "running", "running", "progress"))
        self._since_s, self._entries = time.monotonic(), self.checker.entries

    def _strike_if_due(self) -> None:
        if self._is_ready():
            kinds = MOVES | FAULTS
            kind = self._rng.choices(list(kinds), list(kinds.values()))[0]
            if self._move(kind) if kind in MOVES else self._befall(kind):
                self.tally[kind] += 1
            self._next_round()
        elif time.monotonic() - self._since_s > STALL_S:
            self.checker.violated(f"stalled: {STALL_S:.0f} s without {self._mode}: {self._said()}")

    def _is_ready(self) -> bool:
        if self._mode == "haste":
            return time.monotonic() - self._since_s > self._rng.uniform(0.0, 2.0)
        return self.all_taken() and (self._mode == "running" or self.checker.entries > self._entries)

    def all_taken(self) -> bool:
        """Whether each partition has a worker that takes input, on a machine that gets on."""
        taken = {h.partition for h in self.hosting.living if h.took_s is not None and self.usable(h.machine)}
        return len(taken) == PARTITIONS

    def _said(self) -> str:
        return "; ".join(
            f"{h.partition} on {h.machine.name} ({h.machine.line}, frozen {h.machine.is_frozen}): "
            f"{[task['status'] for task in h.status.values()]}: {h.words()}"
            for h in self.hosting.living
        )

    def _move(self, kind: str) -> bool:
        """Start workers where none should be; return whether there was one to start."""
        if len(self.hosting.living) >= LIVING_MAX:
            return False
        partition = self._rng.randrange(PARTITIONS)
        places = [machine for machine in self.machines if self.usable(machine)]
        if kind == "blind":  # it claims when it gets through, however late that is
            places = [machine for machine in self.machines if machine.line == CUT]
        others = [machine for machine in places if machine is not self.owners.get(partition)]
        if not others:
            return False
        self._rng.shuffle(others)
        if kind == "swap":
            for hosted in self.hosting.living:
                if hosted.partition == partition and not hosted.machine.is_frozen and not hosted.ended_by:
                    self.hosting.ask_to_stop(hosted)
        started = [self._start(machine, partition) for machine in others[: 2 if kind == "both" else 1]]
        return any(started)

    def _befall(self, kind: str) -> bool:
        """Bring a machine into trouble for a while; return whether one could be spared."""
        sound = [machine for machine in self.machines if self.usable(machine) and machine.line == WHOLE]
        away_s = self._rng.choice(self._away_s)
        if len(sound) < (2 if away_s <= min(self._away_s) else 3):
            return False
        machine = self._rng.choice(sound)
        if kind in ("kill", "lose"):
            for hosted in self.hosting.on(machine):
                hosted.ended_by.add("a kill")
            (machine.kill if kind == "kill" else machine.lose)()
            away_s = min(away_s, self._rng.uniform(0.0, 10.0))
        elif kind == "freeze":
            machine.freeze()
        elif kind == "slow":
            machine.slow(self._rng.choice(KBITS))
        elif kind == "far":
            machine.far(self._rng.choice(FARS_MS))
        else:
            machine.set_line(LINES.get(kind) or Line(*[self._rng.choice(LOSSES)] * 2))
        self._troubles.append(Trouble(machine, kind, time.monotonic() + away_s))
        return True

    def _end_troubles(self, *, all_of_them: bool = False) -> None:
        now = time.monotonic()
        for trouble in list(self._troubles):
            if now >= trouble.until_s or all_of_them:
                self._troubles.remove(trouble)
                machine = trouble.machine
                gone = trouble.kind in ("kill", "lose") and not self.hosting.on(machine)
                if gone and self._rng.random() < WIPED_SHARE:
                    self.hosting.wipe(machine)
                    self.tally["empty disks"] += 1
                machine.thaw()
                machine.heal()

    # --- the end ---

    def settle(self) -> None:
        """End all troubles; wait until everything is out and each partition has one worker."""
        self._end_troubles(all_of_them=True)
        deadline = time.monotonic() + STALL_S
        self.feed(2 * SOURCES)  # something for each: who is fenced sees it
        while self.checker.intact and not self._is_settled():
            if time.monotonic() > deadline:
                self.checker.violated(
                    f"stalled: {self.fed} inputs given, {self.checker.entries} entries came out: {self._said()}"
                )
                return
            self.look()
            time.sleep(0.002)

    def _is_settled(self) -> bool:
        alone = len(self.hosting.living) == PARTITIONS and self.all_taken()
        return alone and self.checker.entries >= self.fed
