"""Kills workers while they work, in mid version and in mid restore, and says what that voided."""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from framework.core.wiring import TaskWiring
from framework.runtime.inspect import all_wirings, uncommitted_records
from framework.runtime.local import LocalRun
from framework.stores.directory import wipe_directory

RESTORE_TRIES = 5
MARGIN = 0.1  # of the work: fed ahead of a kill, so that no worker idles, and no more, so that something is left for it


class Kill(NamedTuple):
    """One SIGKILL and the records that it made void; ``restoring``: it hit a worker that was restoring its state."""

    partition: int
    voided: int
    restoring: bool


class _Phase(Enum):
    WAITING = auto()  # for the moment of the next kill
    ARMED = auto()  # for a worker that has something to lose
    RECOVERING = auto()  # for the killed worker to run again
    RESTORING = auto()  # for the worker whose state was deleted to be in the middle of its restore
    CONFIRMING = auto()  # for its next start to bootstrap again, which proves that the restore was not finished


def kill_worker(local: LocalRun, partition: int) -> int:
    """Kill a worker by SIGKILL; return the uncommitted records that its tasks leave in their streams."""
    local.supervisor.kill(partition)
    return at_stake(local, partition)


def at_stake(local: LocalRun, partition: int) -> int:
    """Return the records in streams that the tasks of a worker have not committed."""
    return sum(uncommitted_records(local.log, wiring) for wiring in _wirings(local, partition))


def wipe_state(local: LocalRun, partition: int) -> None:
    """Delete the state of a dead worker: its next start is that of another host."""
    for wiring in _wirings(local, partition):
        wipe_directory(local.place.state(wiring.name))


def is_running(local: LocalRun, partition: int) -> bool:
    """Whether all tasks of a worker have restored and take input."""
    status = local.supervisor.workers[partition].status
    return bool(status) and all(task["status"] == "running" for task in status.values())


class Chaos:
    """``kills`` workers that have something to lose, spread over the work; in the middle one more, in its restore.

    A kill that voided nothing is repeated, but for the one in the restore, where nothing has been sent yet.
    """

    def __init__(self, local: LocalRun, kills: int, note: Callable[[str], None]) -> None:
        self.done: list[Kill] = []
        self._local = local
        self._note = note
        self._moments = [(number + 0.5) / (kills + 1) for number in range(kills + 1)] if kills else []
        self._restore_at = self._moments[len(self._moments) // 2] if kills else 2.0
        self._next = 0
        self._phase = _Phase.WAITING
        self._victim = -1
        self._tries = 0

    @property
    def finished(self) -> bool:
        """Whether all kills are done, and their workers back."""
        return self._next >= len(self._moments) and self._phase is _Phase.WAITING

    @property
    def armed(self) -> bool:
        """Whether a kill waits for a worker to have something to lose: what is fed now helps."""
        return self._phase is _Phase.ARMED

    @property
    def horizon(self) -> float:
        """The share of the work that may be fed before the next kill; above 1: all of it."""
        if self._next >= len(self._moments):
            return 2.0
        return self._moments[self._next] + MARGIN

    @property
    def effective(self) -> int:
        """Kills that voided records."""
        return sum(kill.voided > 0 for kill in self.done)

    def step(self, share: float) -> None:
        """Do what is due when ``share`` of the work is committed by the first stage."""
        match self._phase:
            case _Phase.WAITING if self._next < len(self._moments) and share >= self._moments[self._next]:
                self._phase = _Phase.ARMED
            case _Phase.ARMED:
                self._strike()
            case _Phase.RECOVERING if is_running(self._local, self._victim):
                self._phase = _Phase.WAITING
            case _Phase.RESTORING:
                self._strike_restore()
            case _Phase.CONFIRMING:
                self._confirm()
            case _:
                pass

    def _strike(self) -> None:
        """Kill the worker that was killed least and has something to lose."""
        workers = sorted(self._local.supervisor.workers, key=lambda p: sum(kill.partition == p for kill in self.done))
        for partition in workers:
            if not is_running(self._local, partition) or not at_stake(self._local, partition):
                continue
            voided = kill_worker(self._local, partition)
            if not voided:
                return  # it committed in between
            self.done.append(Kill(partition, voided, restoring=False))
            self._victim = partition
            what = "to be sent again" if not self._local.aligned else "uncommitted records void"
            if self._moments[self._next] == self._restore_at:
                wipe_state(self._local, partition)
                self._note(
                    f"killed worker {partition}: {voided:,} {what}; deleted its state, so that it must restore it"
                )
                self._phase = _Phase.RESTORING
            else:
                self._note(f"killed worker {partition}: {voided:,} {what}")
                self._phase = _Phase.RECOVERING
            self._next += 1
            return

    def _strike_restore(self) -> None:
        worker = self._local.supervisor.workers[self._victim]
        starting = [task for task in worker.status.values() if task["status"] == "starting"]
        if worker.status and not starting:
            self._again("the restore was over")
            return
        halfway = [task["restore"] for task in starting if 0 < task["restore"][0] < task["restore"][1]]
        if halfway or (starting and self._tries):  # a small state is restored before anybody sees it half done
            self._local.supervisor.kill(self._victim)
            done, total = max(halfway, default=[0, 1])
            where = f"{100 * done // total} % read" if halfway else "it had just begun"
            self._note(f"killed worker {self._victim} again, in its restore ({where})")
            self._phase = _Phase.CONFIRMING

    def _confirm(self) -> None:
        """The next start must bootstrap: a finished restore would have left a pointer, and only be redone (R1)."""
        if not is_running(self._local, self._victim):
            return
        tasks = self._local.supervisor.workers[self._victim].status.values()
        if any(task["counters"].get("bootstraps") for task in tasks):
            self.done.append(Kill(self._victim, 0, restoring=True))
            self._phase = _Phase.WAITING
        else:
            self._again("the kill came just after the restore")

    def _again(self, why: str) -> None:
        self._tries += 1
        if self._tries >= RESTORE_TRIES:
            self._note(f"{why}, {self._tries} times: no kill in a restore")
            self._phase = _Phase.WAITING
            return
        self._local.supervisor.kill(self._victim)
        wipe_state(self._local, self._victim)
        self._phase = _Phase.RESTORING


def _wirings(local: LocalRun, partition: int) -> list[TaskWiring]:
    return [wiring for wiring in all_wirings(local.job) if wiring.changelog.partition == partition]
