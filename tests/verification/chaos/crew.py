"""The workers of the chain job under one hand that starts, stops, freezes and kills them."""

import contextlib
import mmap
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from grete.job.directory import JobDirectory
from tests.support.reports import said_in
from tests.verification.chaos.chain import PARTITIONS
from tests.verification.chaos.outside import names_at
from tests.verification.chaos.worker import PHASES, POINT_AT, POINTS, SLOT_BYTES
from tests.verification.chaos.zygote import Child, Zygote

JOB = "tests.verification.chaos.chain"
SLOTS = 8  # per partition: a worker, its zombies, and those that are gone but not yet noted
_RUNNING = {"running", "committing"}


class Death(NamedTuple):
    """The end of a process. ``point``: where it killed itself, if it was asked to and got there."""

    partition: int
    code: int
    phase: str
    point: str | None
    zombie: bool
    by_us: bool


@dataclass
class Member:
    """One process."""

    partition: int
    child: Child
    slot: int
    pipe: int
    state: Path
    by_us: bool = False
    status: dict[str, Any] = field(default_factory=dict)


@dataclass
class Crew:
    """``sets`` gives the settings of the next start. Nothing is restarted by itself: who reads a Death decides."""

    job_directory: JobDirectory
    zygote: Zygote
    sets: Callable[[], Sequence[str]]
    members: dict[int, Member] = field(default_factory=dict)
    zombies: list[Member] = field(default_factory=list)
    starts: int = 0
    file_bytes_max: int | None = None  # of the workers started from now on: a write beyond fails

    def __post_init__(self) -> None:
        names = names_at(self.job_directory)
        self.job = names.job
        self._reference = self.job_directory.directory / "chain_here.py"
        suffix = names.job.name.removeprefix("chain")
        self._reference.write_text(
            f"from tests.verification.chaos.chain import chain_job\n\njob = chain_job({suffix!r}).job\n"
        )
        self._path = self.job_directory.directory / "phases"
        self._path.write_bytes(bytes(PARTITIONS * SLOTS * SLOT_BYTES))
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._starts = [0] * PARTITIONS
        self._states = [self.job_directory.directory / f"state-{partition}-0" for partition in range(PARTITIONS)]

    def state(self, partition: int) -> Path:
        """Return the directory in which the worker of a partition keeps its tasks' states."""
        return self._states[partition]

    def move_state(self, partition: int, directory: Path) -> None:
        """Keep a worker's state elsewhere from its next start on."""
        self._states[partition] = directory

    def start(self, partition: int, point: str | None = None, countdown: int = 1) -> None:
        """Start the worker of a partition. It kills itself at the ``countdown``-th time that it comes to ``point``."""
        assert partition not in self.members
        slot = partition * SLOTS + self._starts[partition] % SLOTS
        self._starts[partition] += 1
        self.starts += 1
        self._memory[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] = bytes(SLOT_BYTES)
        request = {
            "reference": str(self._reference),
            "partition": partition,
            "directory": str(self.job_directory.directory),
            "state": str(self._states[partition]),
            "log": self.job_directory.address.url,
            "config": None if self.job_directory.address.config is None else str(self.job_directory.address.config),
            "sets": list(self.sets()),
            "phases": str(self._path),
            "slot": slot,
            "point": point,
            "countdown": countdown,
            "file_bytes_max": self.file_bytes_max,
        }
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with self.job_directory.worker_log(partition).open("ab") as log:
            child = self.zygote.fork(request, log.fileno(), writer)
        os.close(writer)
        self.members[partition] = Member(partition, child, slot, reader, self._states[partition])

    def phase(self, member: Member) -> str:
        """Return the phase of a worker: the least advanced of its tasks says it, a commit before plain running."""
        at = member.slot * SLOT_BYTES
        return PHASES[min(self._memory[at : at + len(self.job.stages)])]

    def counter(self, partition: int, name: str) -> int:
        """Return a counter of a living worker, of all its tasks together, as it said last."""
        return sum(task["counters"].get(name, 0) for task in self.members[partition].status.values())

    def running(self, partition: int) -> bool:
        """Whether all tasks of a worker take input."""
        member = self.members.get(partition)
        return member is not None and member.child.code is None and self.phase(member) in _RUNNING

    def all_running(self) -> bool:
        """Whether all workers do."""
        return all(self.running(partition) for partition in range(PARTITIONS))

    def kill(self, partitions: Sequence[int]) -> None:
        """Kill some at once, and wait until they are dead; ``poll`` reports them."""
        for partition in partitions:
            self.members[partition].by_us = True
            self.members[partition].child.signal(signal.SIGKILL)
        for partition in partitions:
            self.zygote.wait(self.members[partition].child)

    def freeze(self, partition: int) -> Member:
        """Stop a worker by SIGSTOP and leave it beside its successor, which gets another directory for its state."""
        member = self.members.pop(partition)
        member.child.freeze()
        self.zombies.append(member)
        taken = {zombie.state for zombie in self.zombies}
        number = 0
        while (path := self.job_directory.directory / f"state-{partition}-{number}") in taken:
            number += 1
        self._states[partition] = path
        return member

    def stopped(self, partition: int) -> bool:
        """Whether a worker has been stopped by SIGSTOP."""
        return self.members[partition].child.state() == "T"

    def wake(self, zombie: Member) -> None:
        """Let a frozen worker go on."""
        zombie.child.signal(signal.SIGCONT)

    def unfreeze(self, zombie: Member) -> None:
        """Take a frozen worker back in its place: it has no successor yet."""
        self.zombies.remove(zombie)
        self.members[zombie.partition] = zombie
        self._states[zombie.partition] = zombie.state
        self.wake(zombie)

    def poll(self) -> list[Death]:
        """Return the workers that have died since the last call."""
        self.zygote.poll()
        deaths = []
        for member in [*self.members.values(), *self.zombies]:
            _read_status(member)  # also of a zombie: it waits for a reader of its last report
            if member.child.code is None:
                continue
            zombie = member in self.zombies
            number = self._memory[member.slot * SLOT_BYTES + POINT_AT]
            point = list(POINTS)[number - 1] if number else None
            deaths.append(Death(member.partition, member.child.code, self.phase(member), point, zombie, member.by_us))
            os.close(member.pipe)
            member.child.forget()
            if zombie:
                self.zombies.remove(member)
            else:
                del self.members[member.partition]
        return deaths

    def stop(self, timeout_s: float = 30.0) -> dict[int, int]:
        """Stop all gracefully; return their exit codes."""
        for member in self.members.values():
            member.child.signal(signal.SIGTERM)
        codes = {partition: self.zygote.wait(member.child, timeout_s) for partition, member in self.members.items()}
        self.poll()
        return codes

    def wipe(self, partition: int) -> None:
        """Delete the state of a dead worker: its next start is that of another host."""
        shutil.rmtree(self._states[partition], ignore_errors=True)

    def keep(self, partition: int) -> None:
        """Keep a copy of a dead worker's state."""
        copy = self.job_directory.directory / f"older-{partition}"
        shutil.rmtree(copy, ignore_errors=True)
        if self._states[partition].exists():
            shutil.copytree(self._states[partition], copy)

    def bring_back(self, partition: int) -> bool:
        """Put the copy in the place of a dead worker's state; False if there is none."""
        copy = self.job_directory.directory / f"older-{partition}"
        if not copy.exists():
            return False
        self.wipe(partition)
        shutil.copytree(copy, self._states[partition])
        return True

    def last_words(self, partition: int) -> str:
        """Return the end of a worker's log."""
        lines = self.job_directory.worker_log(partition).read_text(errors="replace").splitlines()
        bad = [line for line in lines if '"INFO"' not in line]
        return " / ".join(bad[-3:])[-1500:]


def _read_status(member: Member) -> None:
    """Take the last whole line in the pipe; workers drop what does not fit."""
    try:
        lines = os.read(member.pipe, 1 << 16).split(b"\n")
    except BlockingIOError:
        return
    for line in reversed(lines[:-1]):  # an empty one is a sign of life
        with contextlib.suppress(ValueError):
            member.status = said_in(line)
            return
