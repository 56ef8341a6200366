"""One long run of the chain job under faults, fed and checked all the time, and its end."""

import fcntl
import random
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from grete.core.graph.task_topology import wire
from grete.errors import ExitCode
from grete.state.read.checkpoints.commits import uncommitted_records
from grete.state.read.local_reader import LocalReader
from tests.verification.chaos.chain import PARTITIONS, Chain, Given, Spread, Tail
from tests.verification.chaos.checker import Checker
from tests.verification.chaos.crew import Crew, Death, Member
from tests.verification.chaos.outside import Outside, names_at
from tests.verification.chaos.tally import Tally
from tests.verification.chaos.worker import POINTS

SOURCES = 40
FEED = 8  # records at once: a trickle, so that there is something to lose at most moments
BACKLOG_MAX = 1000  # records given and not yet out
BAIT_S = 0.2  # so long a strike waits for a victim that has something to lose
POINT_SHARE = 0.4  # of starts: the worker kills itself at a named point
WIPED_SHARE, OLDER_SHARE, KEPT_SHARE = 0.05, 0.06, 0.1  # of deaths: state deleted, an older one brought back, copied
ZOMBIE_SHARE, STOP_SHARE = 0.03, 0.05  # of strikes: SIGSTOP; SIGTERM, and SIGKILL in the middle of the graceful stop
MODES = ["haste", "running", "running", "progress"]  # strike at once, when all run, when all run and something came out
HASTE_S_MAX, ALIVE_INTERVALS_MAX = 0.12, 1.5
STALL_S = 60.0  # without what a round waits for: nothing goes on any more
CRASHES_MAX = 30  # that were no kills, in a row without an output


class Frozen(NamedTuple):
    """A worker under SIGSTOP."""

    member: Member
    since: float


class Campaign:
    """``step`` again and again until ``tally.kills`` is enough, then ``finish``; ``checker`` has the result."""

    def __init__(
        self, outside: Outside, crew: Crew, rng: random.Random, checkpoint_interval_ms: int, note: Callable[[str], None]
    ) -> None:
        self.outside = outside
        self.crew = crew
        self.checker = Checker()
        self.tally = Tally()
        self.fed = 0
        self.faults = True
        self.held: set[int] = set()  # partitions whose workers are not started again
        self.may_end_with: set[int] = set()  # exit codes that are no violation; who ends so is held
        self.deaths: deque[Death] = deque(maxlen=1000)
        self._rng = rng
        self._interval_s = checkpoint_interval_ms / 1000
        self._note = note
        self.numbers = [0] * SOURCES
        self._restart_at = dict.fromkeys(range(PARTITIONS), 0.0)
        self._frozen: list[Frozen] = []
        self._kill_at: dict[int, float] = {}  # of workers in their graceful stop
        self._crashes = 0
        self._next_round()

    # --- what goes on all the time ---

    def step(self) -> None:
        """Restart the dead, feed, read what came out, and strike if it is time."""
        self.look()
        if self.fed - self.checker.entries < BACKLOG_MAX:
            self.feed(FEED)
        if self.faults:
            self._strike_if_due()
            self._wake_if_due()

    def look(self) -> None:
        """Restart the dead and read what came out."""
        now = time.monotonic()
        for partition, at in list(self._kill_at.items()):
            if now >= at:
                del self._kill_at[partition]
                if partition in self.crew.members:
                    self.crew.kill([partition])
                    self.tally.others["killed in a graceful stop"] += 1
        for death in self.crew.poll():
            self._died(death)
        for partition, at in list(self._restart_at.items()):
            if now >= at and partition not in self.held:
                del self._restart_at[partition]
                if partition not in self.crew.members:
                    self._start(partition)
        before = self.checker.entries
        for row in self.outside.arrived():
            self.checker.entry(*row)
        if self.checker.entries > before:
            self._crashes = 0

    def feed(self, count: int) -> None:
        """Give some sources their next inputs, of different sizes. None counts as given where the log takes none."""
        rows, numbers = [], list(self.numbers)
        for _ in range(count):
            source = self._rng.randrange(SOURCES)
            numbers[source] += 1
            padding = "x" * self._rng.choice((0, 0, 0, 10, 100, 1000))
            rows.append((f"source-{source}".encode(), msgspec.json.encode(Given(numbers[source], padding))))
        self.outside.feed(rows)
        self.numbers, self.fed = numbers, self.fed + count

    # --- deaths and starts ---

    def _died(self, death: Death) -> None:
        tally, partition = self.tally, death.partition
        wait_s = 0.0
        self.deaths.append(death)
        if death.code == -signal.SIGKILL and (death.by_us or death.point is not None):
            tally.kills += 1
            tally.phases[death.phase] += 1
            if death.point is not None:
                tally.points[death.point] += 1
            if not death.zombie:
                wiring = wire(self.crew.job.topology(), 0, partition)
                rolled_back = uncommitted_records(self.outside.log, wiring)
                tally.rollbacks += rolled_back > 0
                tally.rolled_back += rolled_back
                if self.faults:
                    self._change_state(death)
        elif death.code in self.may_end_with:
            self.held.add(partition)
        elif death.code == ExitCode.FENCED:
            tally.others["zombies fenced" if death.zombie else "successors fenced"] += 1
        elif death.code in (ExitCode.DONE, -signal.SIGTERM):
            stopped = death.code == ExitCode.DONE
            tally.others["graceful stops" if stopped else "ended by SIGTERM before they could stop"] += 1
        elif death.code == ExitCode.FAILED and '"stop timed out"' in self.crew.last_words(partition):
            tally.others["stops that timed out"] += 1  # without the dead, others cannot align
        else:
            names: dict[int, str] = {ExitCode.HALTED: "halted", ExitCode.FAILED: "crashed"}
            what = names.get(death.code, f"ended with {death.code}")
            words = self.crew.last_words(partition)
            tally.others[what] += 1
            self._crashes += 1
            wait_s = 0.2
            if death.code != ExitCode.FAILED or self._crashes > CRASHES_MAX:
                self.checker.violated(f"worker {partition} {what} ({death.phase}): {words}")
            elif tally.others[what] <= 3:
                self._note(f"worker {partition} {what} ({death.phase}): {words}")
        self._frozen = [frozen for frozen in self._frozen if frozen.member in self.crew.zombies]
        if not death.zombie:
            self._kill_at.pop(partition, None)
            self._restart_at[partition] = time.monotonic() + wait_s

    def _change_state(self, death: Death) -> None:
        """Between a death and the next start, as if the worker came back on another host, or on an old disk."""
        draw = self._rng.random()
        if draw < WIPED_SHARE:
            self.crew.wipe(death.partition)
            self.tally.others["states deleted"] += 1
        elif draw < WIPED_SHARE + OLDER_SHARE:
            self.tally.others["older states brought back"] += self.crew.bring_back(death.partition)
        elif draw < WIPED_SHARE + OLDER_SHARE + KEPT_SHARE:
            self.crew.keep(death.partition)

    def _start(self, partition: int) -> None:
        point = self._rng.choice(list(POINTS)) if self.faults and self._rng.random() < POINT_SHARE else None
        if point is not None and "restored" in point and self._rng.random() < 0.5:
            self.crew.wipe(partition)
        self.crew.start(partition, point, countdown=1 + int(self._rng.expovariate(1.0)))
        self.tally.starts += 1

    # --- strikes ---

    def _next_round(self) -> None:
        self._mode = self._rng.choice(MODES)
        self._due: float | None = None
        self._since = time.monotonic()
        self._entries = self.checker.entries

    def _strike_if_due(self) -> None:
        now = time.monotonic()
        if self._due is None:
            ready = self._mode == "haste" or (
                self.crew.all_running() and (self._mode == "running" or self.checker.entries > self._entries)
            )
            if ready:
                most = HASTE_S_MAX if self._mode == "haste" else ALIVE_INTERVALS_MAX * self._interval_s
                self._due = now + self._rng.uniform(0.0, most)
            elif now - self._since > STALL_S:
                phases = {member.partition: self.crew.phase(member) for member in self.crew.members.values()}
                self.checker.violated(f"stalled: {STALL_S:.0f} s without {self._mode}: {phases}")
                self._next_round()
        elif now >= self._due:
            self._strike()
            self._next_round()

    def _strike(self) -> None:
        victims = self._victims()
        if not victims:
            return
        draw = self._rng.random()
        if draw < ZOMBIE_SHARE:
            self._freeze(victims[0])
        elif draw < ZOMBIE_SHARE + STOP_SHARE:
            for partition in victims:
                self.crew.members[partition].child.signal(signal.SIGTERM)
                self._kill_at[partition] = time.monotonic() + self._rng.uniform(0.0, 2 * self._interval_s)
        else:
            self.crew.kill(victims)

    def _victims(self) -> list[int]:
        """Draw some. Where it must not be at once, the first of them has records to lose, if one has any soon."""
        living = sorted(self.crew.members)
        victims = self._rng.sample(living, min(self._rng.choice((1, 1, 2, PARTITIONS)), len(living)))
        if self._mode == "haste" or not victims:
            return victims
        topology = self.crew.job.topology()
        deadline = time.monotonic() + BAIT_S
        while time.monotonic() < deadline:
            at_stake = [p for p in living if uncommitted_records(self.outside.log, wire(topology, 0, p))]
            if at_stake:
                first = self._rng.choice(at_stake)
                return [first, *(victim for victim in victims[1:] if victim != first)]
            self.feed(FEED)
        return victims

    def _freeze(self, partition: int) -> None:
        """Make a zombie of a running worker, beside which a successor starts."""
        member = self.crew.freeze(partition)
        if self.crew.phase(member) not in ("running", "committing"):
            self.crew.unfreeze(member)  # it has no claim yet: it would be the successor's successor
        elif self.locked():
            time.sleep(self._rng.uniform(0.0, 0.3))  # everybody waits for it: this process must not
            self.crew.unfreeze(member)
            self.tally.others["frozen as the log's one writer"] += 1
        else:
            self._frozen.append(Frozen(member, time.monotonic()))
            self._restart_at[partition] = 0.0
            self.tally.others["zombies"] += 1

    def locked(self) -> bool:
        """Whether a lock of the embedded log stays taken: by the frozen worker then."""
        for name in ("log.db-lock", "log.db-queue"):
            path = self.crew.job_directory.directory / name
            if not path.exists():
                continue
            with path.open("rb+") as file:
                for _ in range(30):
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        time.sleep(0.001)
                else:
                    return True
        return False

    def _wake_if_due(self) -> None:
        for frozen in self._frozen:
            if time.monotonic() - frozen.since > self._rng.uniform(0.05, 3.0):
                self.crew.wake(frozen.member)

    # --- the end ---

    def finish(self) -> None:
        """End all faults, let everything come out, stop, and compare entries, inputs and states in both directions."""
        self.faults = False
        for zombie in self.crew.zombies:
            self.crew.wake(zombie)
        if self.crew.members:
            self.crew.kill(sorted(self.crew.members))  # those that start now meet no point
        if not self.until(lambda: self.checker.entries >= self.fed and not self.crew.zombies):
            self.checker.violated(
                f"stalled: {self.fed} inputs given, {self.checker.entries} entries came out, "
                f"{len(self.crew.zombies)} zombies are left"
            )
        self.until(self.crew.all_running)
        self._stop()
        names = names_at(self.crew.job_directory)
        for row in self.outside.arrived():
            self.checker.entry(*row)
        for row in self.outside.all(names.given):
            self.checker.input(*row)
        self.checker.complete()
        again = Checker()
        for row in self.outside.all(names.entries):
            again.entry(*row)
        self.checker.same(again)
        self._compare_state("as the workers left it")
        for partition in range(PARTITIONS):  # the changelogs alone must say the same
            self.crew.wipe(partition)
            self.crew.start(partition)
        self.until(self.crew.all_running)
        self._stop()
        self._compare_state("restored from the changelogs")

    def _stop(self) -> None:
        codes = self.crew.stop()
        if any(codes.values()):
            self.checker.violated(f"graceful stop: exit codes {codes}")

    def until(self, condition: Callable[[], bool], timeout_s: float = STALL_S) -> bool:
        """Let everything go on until the condition holds; return whether it came to that."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline or self._crashes > CRASHES_MAX:
                return False
            self.look()
            time.sleep(0.002)
        return True

    def _compare_state(self, how: str) -> None:
        sources: list[tuple[str, Tail]] = []
        accounts: list[tuple[str, Tail]] = []
        for partition in range(PARTITIONS):
            with LocalReader(self.crew.state(partition), self.crew.job) as reader:
                sources += reader.all(Spread.sources, partition)
                accounts += reader.all(Chain.accounts, partition)
        self.checker.state(f"sources, {how}", self.checker.sources, sources)
        self.checker.state(f"accounts, {how}", self.checker.accounts, accounts)
