"""A member that joins and dies, again and again, beside members that work; judged from outside.

python -m tests.verification.machines.flapping --seconds 60 [--machines 3] [--mode aligned|deterministic] [--seed 1]
                                               [--directory DIR]

The last machine is killed as soon as the others could know of its member, or up to a second later, and started again.
Nothing may be lost or be there twice, and the screens of the others may not be flooded. WRITE=1 keeps the run in
docs/results, for docs/MEMBERS.md. Exit code 1 if the checker objects, or if a screen has too many lines.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console

from benchmarks.results import Cell, Kept, Run, read, with_row, write
from benchmarks.running import taken
from grete.logs.kafka.members_topic import KafkaMembersTopic
from grete.logs.patience import Patience
from grete.protocol.members import Heartbeat, decode_members_message
from tests.verification.chaos.chain import Mode
from tests.verification.machines.machine import Machine
from tests.verification.machines.members import Members, running

QUIET_S = 10.0  # before it begins: how many rows are written without it
WAIT_S_MAX = 1.0  # from a member's first heartbeat until it is killed
LINES_MAX = 8  # of a screen in a minute about members: a few at once, then one


class Flapping:
    """The observations. ``rows``: in the members' topic, by kind; ``lines``: on the others' screens, by subject."""

    def __init__(self, members: Members, topic: KafkaMembersTopic) -> None:
        """The last machine is the one that dies."""
        *others, self._restless = members.machines
        self._members, self._topic, self._others = members, topic, others
        self.rows, self.sessions = Counter[str](), set[str]()
        self._before = self._moves()
        self.deaths, self.quiet_rows_s, self.seconds = 0, 0.0, 0.0
        self.lines, self.moves = Counter[str](), Counter[str]()
        self._begun = {machine.name: len(screen(machine)) for machine in others}

    def run(self, seconds: float, quiet_s: float) -> None:
        """Let a member die again and again for so long, and at least twice; the last one stays."""
        self._read(0.0)
        self.rows.clear()
        self._read(quiet_s)
        self.quiet_rows_s = self.rows["Heartbeat"] / quiet_s
        self.rows.clear()
        self._begun = {machine.name: len(screen(machine)) for machine in self._others}
        self._before, began_s = self._moves(), time.monotonic()
        while self._members.checker.intact and (time.monotonic() - began_s < seconds or self.deaths < 2):
            self._members.kill(self._restless)
            self.deaths += 1
            self._members.start(self._restless)
            known = len(self.sessions)
            self._members.until(lambda known=known: self._knows(known), "its member joins")  # type: ignore[misc]  # mypy gives a default no type
            self._read(self._members.rng.uniform(0.0, WAIT_S_MAX))
        self.seconds = time.monotonic() - began_s
        self.moves = Counter(self._moves())
        self.moves.subtract(self._before)
        for machine in self._others:
            for line in screen(machine)[self._begun[machine.name] :]:
                self.lines[_about(line)] += 1
                self.lines[machine.name] += _about(line) == "members"
        for machine in self._others:
            if self.lines[machine.name] > LINES_MAX * max(1.0, self.seconds / 60):
                self._members.checker.violated(f"{machine.name} says {self.lines[machine.name]} times who is there")

    def _moves(self) -> dict[str, int]:
        return {machine.name: self._members.moves(machine) for machine in self._members.machines}

    def _knows(self, sessions: int) -> bool:
        self._read(0.0)
        return len(self.sessions) > sessions

    def _read(self, seconds: float) -> None:
        """Read the topic for so long, while everything goes on."""
        self._members.during(seconds)
        for _, _, data in self._topic.read(0.0):
            message = decode_members_message(data)
            self.rows[type(message).__name__] += 1
            if isinstance(message, Heartbeat) and message.machine == self._restless.name:
                self.sessions.add(message.session)


def _about(line: str) -> str:
    if "of the job: " in line:
        return "members"
    return "progress" if line.startswith("processed ") else "moves" if line.startswith("partition ") else "other"


def screen(machine: Machine) -> list[str]:
    """Return the output of the member there so far."""
    return (machine.directory / "up.log").read_text(errors="replace").splitlines()


def run(
    directory: Path, mode: Mode, seed: int, machines: int, seconds: float, *, quiet_s: float = QUIET_S
) -> tuple[Members, Flapping]:
    """Let the member of one machine die again and again; return what came of it. Raises NoNetwork."""
    with running(directory, mode, seed, machines) as members:
        name = members.names.job.name
        with closing(KafkaMembersTopic(members.bootstrap, None, name, Patience(), write=False)) as topic:
            seen = Flapping(members, topic)
            seen.run(seconds, quiet_s)
        members.judge()
    return members, seen


def with_run(kept: Kept, run: Run, mode: Mode, seed: int, members: Members, seen: Flapping) -> Kept:
    """Return the results with this run beside those of other seeds."""
    columns = ["seed", "commit", "seconds", "deaths", "partitions came to another member", "to the one that dies"]
    columns += [
        "heartbeats a second before, of all",
        "heartbeats a second",
        "assignments",
        "lines of another's screen but progress",
    ]
    columns += ["of them on who is there", "entries checked"]
    others = len(members.machines) - 1
    dies = seen.moves[members.machines[-1].name]
    row: list[Cell] = [seed, run.commit, round(seen.seconds), seen.deaths, seen.moves.total() - dies, dies]
    row += [round(seen.quiet_rows_s, 1), round(seen.rows["Heartbeat"] / seen.seconds, 1), seen.rows["JobAssignment"]]
    row += [round(sum(seen.lines[kind] for kind in ("members", "moves", "other")) / others)]
    row += [round(seen.lines["members"] / others), members.checker.entries]
    return with_row(kept, run, f"A member that joins and dies again and again: {mode} mode", columns, row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a report, return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.verification.machines.flapping", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--mode", choices=["aligned", "deterministic"], default="aligned")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--directory", type=Path, help="for the broker and the machines; default: a temporary one")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the namespaces are to be removed
    console = Console(highlight=False, soft_wrap=True)
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="grete-flapping-"))
    members, seen = run(directory, asked.mode, asked.seed, asked.machines, asked.seconds)
    console.print(f"{seen.deaths} deaths in {seen.seconds:.0f} s; partitions came: {dict(seen.moves)}", markup=False)
    console.print(f"rows: {dict(seen.rows)}; {seen.quiet_rows_s:.1f} a second before", markup=False)
    console.print(f"lines of the others' screens: {dict(seen.lines)}", markup=False)
    if members.checker.violations:
        for violation in members.checker.violations:
            console.print(f"  {violation}", markup=False)
        console.print(f"Look at: {directory}")
        return 1
    console.print(f"{members.checker.entries:,} entries checked. Nothing lost, nothing twice.")
    if os.environ.get("WRITE"):
        write("flapping", with_run(read("flapping"), taken(), asked.mode, asked.seed, members, seen))
    if asked.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
