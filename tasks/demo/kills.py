"""Kills workers while they work, in mid checkpoint and in mid restore, and says what that rolled back."""

import time
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from grete.core.graph.task_topology import TaskWiring
from grete.protocol.report import TaskState
from grete.state.read.checkpoints.commits import all_wirings, uncommitted_records
from grete.stores.store_directory import wipe_directory
from grete.worker.supervisor.local_job import LocalJob

RESTORE_TRIES = 5
SPREAD = 0.8  # of the work: the kills' moments lie in it
RESERVE = 0.15  # of the work: kept back until the last kill, so that there is something to lose
BACKLOG, BACKLOG_MIN = 0.12, 4  # of the work, and documents: so much waits for the workers, so that none is idle
HUNGER_S = 0.15  # between two batches that are fed for a kill
ALONE_S = 1.0  # after so long the last victim may be the next one


class Kill(NamedTuple):
    """One SIGKILL and the records that it rolled back. ``restoring``: it hit a worker that was restoring its state."""

    partition: int
    rolled_back: int
    restoring: bool


class _Phase(Enum):
    WAITING = auto()  # for the moment of the next kill
    ARMED = auto()  # for a worker that has something to lose
    RECOVERING = auto()  # for all tasks of the job to commit again, which they do only together
    RESTORING = auto()  # for the worker whose state was deleted to be in the middle of its restore
    CONFIRMING = auto()  # for its next start to restore again, which proves that the restore was not finished


def kill_worker(local: LocalJob, partition: int) -> int:
    """Kill a worker by SIGKILL; return the uncommitted records that its tasks leave in their streams."""
    local.supervisor.kill(partition)
    return at_stake(local, partition)


def at_stake(local: LocalJob, partition: int) -> int:
    """Return the records in streams that the tasks of a worker have not committed."""
    return sum(uncommitted_records(local.log, wiring) for wiring in _wirings(local, partition))


def wipe_state(local: LocalJob, partition: int) -> None:
    """Delete the state of a dead worker: its next start is that of another host."""
    for wiring in _wirings(local, partition):
        wipe_directory(local.job_directory.state(wiring.name))


def is_running(local: LocalJob, partition: int) -> bool:
    """Whether all tasks of a worker have restored and take input."""
    tasks = local.supervisor.workers[partition].reports.tasks
    return bool(tasks) and all(task.status is TaskState.RUNNING for task in tasks.values())


class Chaos:
    """``kills`` workers that have something to lose, spread over the work; in the middle one more, in its restore.

    A kill that rolled back nothing is repeated, but for the one in the restore, where nothing has been sent yet. The
    work is handed out by ``may_feed``: enough to keep all workers busy, and not all of it as long as kills are left.
    """

    def __init__(self, local: LocalJob, kills: int, say: Callable[[str], None]) -> None:
        self.done: list[Kill] = []
        self._local = local
        self._say = say
        count = kills + 1 if kills else 0
        self._moments = [SPREAD * (number + 0.5) / count for number in range(count)]
        self._restore_at = count // 2
        self._phase = _Phase.WAITING
        self._next = 0
        self._victim = -1
        self._committed = 0  # the greatest that a task had committed at the last kill
        self._tries = 0
        self._armed_s = self._fed_s = 0.0

    @property
    def missed(self) -> int:
        """Kills that are left."""
        return len(self._moments) - self._next

    @property
    def settled(self) -> bool:
        """Whether no killed worker is on its way back."""
        return self._phase in (_Phase.WAITING, _Phase.ARMED)

    @property
    def effective(self) -> int:
        """Kills that rolled back records."""
        return sum(kill.rolled_back > 0 for kill in self.done)

    def may_feed(self, done: int, planned: int, backlog: int) -> bool:
        """Whether more may be fed, after ``done`` of ``planned`` files; ``backlog`` is fed and not yet committed."""
        if not self.missed or done == planned:
            return True
        if self._phase is not _Phase.ARMED or not all(
            is_running(self._local, p) for p in self._local.supervisor.workers
        ):
            return done < (1 - RESERVE) * planned and backlog < max(BACKLOG_MIN, BACKLOG * planned)
        if time.monotonic() - self._fed_s < HUNGER_S:
            return False
        self._fed_s = time.monotonic()  # no worker has anything to lose: this batch is bait
        return True

    def step(self, share: float) -> None:
        """Do what is due when ``share`` of the work has been fed."""
        match self._phase:
            case _Phase.WAITING if self.missed and share >= self._moments[self._next]:
                self._phase, self._armed_s = _Phase.ARMED, time.monotonic()
            case _Phase.ARMED:
                self._strike()
            case _Phase.RECOVERING if min(self._local.checkpoint_ids().values()) > self._committed:
                self._phase = _Phase.WAITING
            case _Phase.RESTORING:
                self._strike_restore()
            case _Phase.CONFIRMING:
                self._confirm()
            case _:
                pass

    def _strike(self) -> None:
        """Kill the worker that was killed least and has something to lose; the last victim only if no other has."""
        alone = time.monotonic() - self._armed_s > ALONE_S or len(self._local.supervisor.workers) == 1
        workers = sorted(self._local.supervisor.workers, key=lambda p: sum(kill.partition == p for kill in self.done))
        for partition in workers:
            if partition == self._victim and not alone:
                continue
            watch = self._local.completion.commits
            at_risk = sum(watch.uncommitted_records(wiring) for wiring in _wirings(self._local, partition))
            if not is_running(self._local, partition) or not at_risk:
                continue
            rolled_back = kill_worker(self._local, partition)
            if rolled_back:  # else it committed in between
                self._struck(partition, rolled_back)
            return

    def _struck(self, partition: int, rolled_back: int) -> None:
        """Note a kill and go on; at the moment of the restore, the victim's state goes, too."""
        self.done.append(Kill(partition, rolled_back, restoring=False))
        self._victim = partition
        self._committed = max(self._local.checkpoint_ids().values())
        text = f"killed worker {partition}: {rolled_back:,} uncommitted records "
        text += "rolled back" if self._local.settings.aligned else "to be sent again"
        if self._next == self._restore_at:
            wipe_state(self._local, partition)
            text += "; its state deleted, so that it must restore it"
            self._phase = _Phase.RESTORING
        else:
            self._phase = _Phase.RECOVERING
        self._say(text)
        self._next += 1

    def _strike_restore(self) -> None:
        worker = self._local.supervisor.workers[self._victim]
        starting = [task for task in worker.reports.tasks.values() if task.status is TaskState.STARTING]
        if worker.reports.tasks and not starting:
            self._again("the restore was over")
            return
        halfway = [task.restore for task in starting if 0 < task.restore.done < task.restore.total]
        if halfway or (starting and self._tries):  # a small state is restored before anybody sees it half done
            self._local.supervisor.kill(self._victim)
            read = max((100 * each.done // each.total for each in halfway), default=0)
            where = f"{read} % read" if halfway else "it had just begun"
            self._say(f"killed worker {self._victim} again, in its restore ({where})")
            self._phase = _Phase.CONFIRMING

    def _confirm(self) -> None:
        """Check that the next start restores again.

        A finished restore would have left a changelog position, and its start would only redo (R1).
        """
        if not is_running(self._local, self._victim):
            return
        tasks = self._local.supervisor.workers[self._victim].reports.tasks.values()
        if any(task.counters.get("restores") for task in tasks):
            self.done.append(Kill(self._victim, 0, restoring=True))
            self._phase = _Phase.RECOVERING
        else:
            self._again("the kill came just after the restore")

    def _again(self, why: str) -> None:
        self._tries += 1
        if self._tries >= RESTORE_TRIES:
            self._say(f"{why}, {self._tries} times: no kill in a restore")
            self._phase = _Phase.RECOVERING
            return
        self._local.supervisor.kill(self._victim)
        wipe_state(self._local, self._victim)
        self._phase = _Phase.RESTORING


def _wirings(local: LocalJob, partition: int) -> list[TaskWiring]:
    return [wiring for wiring in all_wirings(local.job) if wiring.changelog.partition == partition]
