"""Members of a job share its partitions on machines that die, lose their network or stand still; judged from outside.

python -m tests.verification.machines.members --faults 30 [--machines 3] [--mode aligned|deterministic] [--seed 1]
                                              [--far MS] [--directory DIR]

Each machine runs ``grete up``; one that dies is started again when its trouble is over. Nothing but the members moves a
partition. WRITE=1 keeps the run in docs/results, for docs/MEMBERS.md. Exit code 1 if the checker objects, or if what
was given does not come out.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.results import Cell, Kept, Run, read, with_row, write
from benchmarks.running import taken
from grete.errors import ExitCode
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.spark.java import find_java
from grete.testing.broker.jars import find_jars
from grete.testing.broker.settings import free_port
from tests.verification.chaos.chain import PARTITIONS, Given, Mode, chain_job
from tests.verification.chaos.checker import Checker
from tests.verification.chaos.cluster import Cluster
from tests.verification.chaos.outside import KafkaOutside, Outside
from tests.verification.machines.assigner import FARS_MS
from tests.verification.machines.hosted import LONG_FETCHES, REFERENCE, ROOT
from tests.verification.machines.machine import CUT, DEAF, MUTE, Line, Machine
from tests.verification.machines.network import Network

FAULTS = {"kill": 4, "lose": 4, "freeze": 3, "cut": 4, "mute": 2, "deaf": 2, "lossy": 1, "slow": 1, "far": 1, "stop": 3}
LINES = {"cut": CUT, "mute": MUTE, "deaf": DEAF, "lossy": Line(20, 20)}
AWAY_S = (0.5, 3.0, 5.0, 5.0, 5.0, 10.0, 30.0, 30.0, 120.0)
COMES = re.compile("^partition [0-9]+ comes here$", re.MULTILINE)  # as a member prints it
SOURCES, FEED, BACKLOG_MAX = 40, 8, 300
STALL_S = 180.0
PAUSE_S = 0.05  # between records: 160 a second show what all that the cores can take would show
START_PAUSE_S = 0.5  # between records until each machine has something: a far one takes a minute
SETS = ("checkpoint_interval_ms=100", "shutdown_timeout_ms=3000", "rocksdb_bytes=16777216")


class Members:
    """The machines, each with its member, or without one."""

    def __init__(
        self,
        network: Network,
        outside: Outside,
        log: str,
        mode: Mode,
        rng: random.Random,
        away_s: Sequence[float],
        far_ms: float = 0.0,
    ) -> None:
        self.machines, self._far_ms = list(network.machines.values()), far_ms
        self.feeds, self.stood_s, self.seconds = True, list[float](), 0.0  # how long outputs stood still, by fault
        self.outside, self.checker, self.tally = outside, Checker(), Counter[str]()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.bootstrap = ""  # of the broker, without the machines' way to it
        self.pause_s, self._fed_s = PAUSE_S, 0.0  # between what is fed
        self.fed, self._numbers, self.rng, self._away_s = 0, [0] * SOURCES, rng, away_s
        self._sources = random.Random(rng.random())  # the plan must not depend on how fast records go
        self.names = chain_job("", mode)
        self._log, self._reference = log, REFERENCE.format(suffix="", mode=mode)
        self._expected: dict[str, set[int]] = {}

    def start(self, machine: Machine) -> None:
        """Start the member of a machine."""
        machine.write("chain_here.py", self._reference)
        machine.write("kafka.properties", LONG_FETCHES)
        command = [sys.executable, "-m", "grete.cli", "up", "chain_here.py", "--log", self._log]
        command += [
            "--kafka-config",
            "kafka.properties",
            "--directory",
            "job",
            *(part for each in (*SETS, f"machine={machine.name}") for part in ("--set", each)),
        ]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        log = machine.directory / "up.log"
        self.running[machine.name] = machine.start(command, log, environment={"PYTHONPATH": paths})
        self._expected[machine.name] = set()

    def step(self) -> None:
        """Feed, read what came out, and notice members that have ended."""
        is_due = self.feeds and time.monotonic() >= self._fed_s + self.pause_s
        if is_due and self.fed - self.checker.entries < BACKLOG_MAX:
            rows, self._fed_s = [], time.monotonic()
            for _ in range(FEED):
                source = self._sources.randrange(SOURCES)
                self._numbers[source] += 1
                rows.append((b"source-%d" % source, msgspec.json.encode(Given(self._numbers[source]))))
            self.outside.feed(rows)
            self.fed += FEED
        for row in self.outside.arrived():
            self.checker.entry(*row)
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[name]
                if process.returncode not in self._expected[name]:
                    self.tally[f"ended with {process.returncode}"] += 1
                    self.checker.violated(f"the member of {name} ended with {process.returncode}")
        time.sleep(0.005)

    def until(self, done: Callable[[], bool], what: str, seconds: float = STALL_S) -> None:
        """Go on until something is so, or note that it does not come."""
        deadline = time.monotonic() + seconds
        while self.checker.intact and not done():
            if time.monotonic() > deadline:
                self.checker.violated(f"after {seconds:.0f} s still not: {what}")
            self.step()

    def during(self, seconds: float) -> None:
        """Go on for some time."""
        end = time.monotonic() + seconds
        while self.checker.intact and time.monotonic() < end:
            self.step()

    def judge(self) -> None:
        """Wait until all that was given is out, and compare it with what was given."""
        self.feeds = False
        self.until(lambda: self.checker.entries >= self.fed, "all comes out")
        if self.checker.intact:
            for row in self.outside.all(self.names.given):
                self.checker.input(*row)
            self.checker.complete()

    def kill(self, machine: Machine) -> None:
        """Kill a machine; return when its member has ended."""
        self.expect(machine, -signal.SIGKILL)
        machine.kill()
        self.until(lambda: machine.name not in self.running, f"the member of {machine.name} ends")

    def expect(self, machine: Machine, *codes: int) -> None:
        """Take an end of the member there, with one of these codes, for no violation."""
        self._expected[machine.name] |= set(codes)

    def moves(self, *machines: Machine) -> int:
        """Return the number of moves to a member: the first one, from another member, or to one that came back.

        ``machines``: only to these.
        """
        logs = [machine.directory / "up.log" for machine in machines or self.machines]
        return sum(len(COMES.findall(log.read_text(errors="replace"))) for log in logs if log.exists())

    def heal(self, machine: Machine) -> None:
        """Let the line of a machine be as it was at the start: the first one may be far all the time."""
        machine.heal()
        if self._far_ms and machine is self.machines[0]:
            machine.far(self._far_ms)

    def strike(self) -> str:
        """Let something befall a machine, and end it after a while; return what it was."""
        kind = self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
        machine, away_s = self.rng.choice(self.machines), self.rng.choice(self._away_s)
        self.tally[kind] += 1
        if kind in ("kill", "lose"):
            self.expect(machine, -signal.SIGKILL)
            (machine.kill if kind == "kill" else machine.lose)()
        elif kind == "stop":
            self.expect(machine, ExitCode.DONE, ExitCode.FAILED, -signal.SIGTERM)
            self.running[machine.name].send_signal(signal.SIGTERM)
        elif kind == "freeze":
            machine.freeze()
        elif kind == "slow":
            machine.slow(2_000)
        elif kind == "far":
            machine.far(self.rng.choice(FARS_MS))
        else:
            machine.set_line(LINES[kind])
        before, began = self.checker.entries, time.monotonic()
        self.until(
            lambda: self.checker.entries > before + BACKLOG_MAX, f"outputs go on without {machine.name} ({kind})"
        )
        self.stood_s.append(time.monotonic() - began)
        self.during(away_s - self.stood_s[-1])
        machine.thaw()
        self.heal(machine)
        if kind in ("kill", "lose", "stop"):
            self.until(lambda: machine.name not in self.running, f"the member of {machine.name} ends")
        if machine.name not in self.running:
            self.start(machine)
        return f"{kind} of {machine.name} for {away_s:.1f} s"


@contextlib.contextmanager
def running(
    directory: Path,
    mode: Mode,
    seed: int,
    machines: int,
    *,
    away_s: Sequence[float] = AWAY_S,
    far_ms: float = 0.0,
) -> Iterator[Members]:
    """Yield members that share the partitions, on machines with a broker at their switch. Raises NoNetwork."""
    find_java(), find_jars()  # where there is a way out to fetch them
    with contextlib.ExitStack() as held:
        network = held.enter_context(Network(directory, [f"machine{number}" for number in range(machines)]))
        (directory / "kafka").mkdir()
        line, names = free_port(), chain_job("", mode)  # the machines' way to the broker; the checker has its own
        broker = held.enter_context(Cluster(directory / "kafka", behind=[line], host=network.host))
        held.enter_context(network.proxy(line, broker.outside[0], seed))
        address = LogAddress(f"kafka://{broker.bootstrap}")
        outside = KafkaOutside(JobDirectory(directory / "outside", address=address), names)
        held.callback(outside.close)
        members = Members(network, outside, f"kafka://{network.host}:{line}", mode, random.Random(seed), away_s, far_ms)
        for machine in members.machines:
            members.heal(machine)
            members.start(machine)
        members.until(lambda: members.checker.entries > 0, "something comes out")
        taking = min(machines, PARTITIONS)  # nothing is lost with one that has not begun: no partition would move
        share = lambda: sum(map(bool, map(members.moves, members.machines))) >= taking  # noqa: E731  # said in one place
        members.pause_s = START_PAUSE_S
        members.until(share, "the machines share the partitions")
        members.pause_s = PAUSE_S
        members.bootstrap = broker.bootstrap
        yield members


def run(
    directory: Path,
    mode: Mode,
    seed: int,
    faults: int,
    machines: int,
    console: Console,
    *,
    away_s: Sequence[float] = AWAY_S,
    far_ms: float = 0.0,
) -> Members:
    """Strike that many times; return what came of it. ``far_ms``: that far is the first machine. Raises NoNetwork."""
    started = time.monotonic()
    with running(directory, mode, seed, machines, away_s=away_s, far_ms=far_ms) as members:
        for _ in range(faults):
            if not members.checker.intact:
                break
            what = members.strike()
            console.print(f"{what}: {members.stood_s[-1]:.1f} s until {BACKLOG_MAX} more were out", markup=False)
            members.during(members.rng.uniform(0.0, 5.0))
        members.judge()
    members.seconds = time.monotonic() - started
    return members


def with_run(kept: Kept, run: Run, mode: Mode, seed: int, members: Members) -> Kept:
    """Return the results with this run beside those of other seeds."""
    title, tally = f"Members under faults: {mode} mode", members.tally
    columns = [
        "seed",
        "commit",
        "faults",
        "partitions came to a member",
        "machines killed or lost",
        "frozen",
        "cut off",
    ]
    columns += [
        "mute or deaf",
        "lossy, slow or far lines",
        "stopped",
        "entries checked",
        "longest without outputs, s",
        "seconds",
    ]
    row: list[Cell] = [seed, run.commit, tally.total(), members.moves(), tally["kill"] + tally["lose"], tally["freeze"]]
    row += [
        tally["cut"],
        tally["mute"] + tally["deaf"],
        sum(tally[kind] for kind in ("lossy", "slow", "far")),
        tally["stop"],
    ]
    row += [members.checker.entries, round(max(members.stood_s), 1), round(members.seconds)]
    return with_row(kept, run, title, columns, row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a report, return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.verification.machines.members", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--mode", choices=["aligned", "deterministic"], default="aligned")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--far", type=float, default=0.0, help="ms of the first machine's line, in each direction")
    parser.add_argument("--directory", type=Path, help="for the broker and the machines; default: a temporary one")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the namespaces are to be removed
    console = Console(highlight=False, soft_wrap=True)
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="grete-members-"))
    console.print(f"--faults {asked.faults} --machines {asked.machines} --mode {asked.mode} --seed {asked.seed}")
    members = run(directory, asked.mode, asked.seed, asked.faults, asked.machines, console, far_ms=asked.far)
    console.print(f"{members.checker.entries:,} entries checked; {dict(members.tally)}", markup=False)
    console.print(f"a partition came to a member {members.moves():,} times, in {members.seconds:,.0f} s")
    if members.checker.violations:
        for violation in members.checker.violations:
            console.print(f"  {violation}", markup=False)
        console.print(f"Look at: {directory}")
        return 1
    console.print("Nothing lost, nothing twice.")
    if os.environ.get("WRITE"):
        write("members", with_run(read("members"), taken(), asked.mode, asked.seed, members))
    if asked.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
