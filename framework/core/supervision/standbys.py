"""The standbys of a machine: a process for each partition that it keeps ready, restarted with back-off.

None of their ends stops the machine. What fails is told, and tried again: a partition moves without a standby, too.
"""

from collections.abc import Collection, Mapping

from grete.core.members.assignor import CAUGHT_UP
from grete.core.supervision.actions import (
    KeepStandby,
    KillStandby,
    SpawnStandby,
    StopStandby,
    SupervisionAction,
    Tell,
    TellComing,
)
from grete.core.supervision.lifecycle import LIVE, STANDBY_PROCESS, ProcessState
from grete.core.supervision.policy import Policy
from grete.core.supervision.process_end import ProcessExit
from grete.protocol.report import EndReport, StandbyReport, StandbyTaskReport


class SupervisedStandby:
    """The standby of one partition. ``tasks``: by name, as they said last."""

    def __init__(self, partition: int) -> None:
        """Wait for the first start."""
        self.partition = partition
        self.state = STANDBY_PROCESS.first
        self.tasks: Mapping[str, StandbyTaskReport] = {}
        self.end: EndReport | None = None  # why its process ends, if it can say so
        self.starts = 0
        self.stays = False  # its process is to be a worker's once it has closed its stores
        self.opens = False  # it was told that a worker is to take its place soon
        self.ends = 0  # in a row, without having caught up in between
        self.due_s = 0.0  # when it starts
        self.kill_at_s = 0.0  # of one that was asked to end
        self.told = ""  # what a person was told last of it
        self._read: tuple[int, float] = -1, 0.0  # messages of its changelogs, and when that was another number last

    @property
    def live(self) -> bool:
        """Whether its process is there, and may have the stores open."""
        return self.state in LIVE

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint that each of its stores includes, -1: one includes none."""
        return min((task.checkpoint_id for task in self.tasks.values()), default=-1)

    @property
    def behind(self) -> int:
        """The messages of its changelogs that its stores do not include, -1: not known, or it still restores."""
        tasks = self.tasks.values()
        return sum(t.behind for t in tasks) if tasks and all(t.behind >= 0 for t in tasks) else -1

    def become(self, state: ProcessState) -> None:
        """Change the state of its process. Raises AssertionError if it cannot follow the one before."""
        self.state = STANDBY_PROCESS.change(f"the standby of partition {self.partition}", self.state, state)

    def restores(self, still_s: float, now_s: float) -> bool:
        """Whether it has still to restore: a worker that took its place now would begin again.

        ``still_s``: one that has read nothing for this long does not come on.
        """
        moves = now_s - self._read[1] < still_s and not any(task.trouble for task in self.tasks.values())
        return bool(self.tasks) and self.behind < 0 and moves

    def started(self) -> None:
        """Take note that a new process begins."""
        self.become(ProcessState.STARTING)
        self.tasks, self.end, self._read, self.stays, self.opens = {}, None, (-1, 0.0), False, False
        self.starts += 1

    def take(self, report: StandbyReport, now_s: float) -> None:
        """Take a report."""
        if self.state is ProcessState.STARTING:
            self.become(ProcessState.RUNNING)
        self.tasks, self.end = {task.name: task for task in report.tasks}, report.end
        read = sum(task.read for task in report.tasks)
        if read != self._read[0]:
            self._read = read, now_s


class Standbys:
    """A partition is started as active only when ``held`` has it no longer. ``by_partition``: those that are there."""

    def __init__(self, policy: Policy) -> None:
        """Keep nothing ready yet."""
        self.wanted: frozenset[int] = frozenset()
        self.by_partition: dict[int, SupervisedStandby] = {}
        self._policy = policy
        self._promoted: frozenset[int] = frozenset()  # those that a worker waits for
        self._coming: frozenset[int] = frozenset()  # those of the wanted ones that are to be active soon

    @property
    def held(self) -> frozenset[int]:
        """The partitions whose stores a standby may have open."""
        return frozenset(partition for partition, each in self.by_partition.items() if each.live)

    @property
    def ending(self) -> bool:
        """Whether one is about to let go of its stores."""
        return any(each.state in (ProcessState.STOPPING, ProcessState.KILLED) for each in self.by_partition.values())

    def want(
        self, partitions: Collection[int], promoted: Collection[int], coming: Collection[int], now_s: float
    ) -> list[SupervisionAction]:
        """Keep these partitions ready from now on; the standbys of others end.

        The processes of those that are ``promoted`` stay for the worker that takes their place, and end when they have
        restored. Those that are ``coming`` open ahead what that worker needs.
        """
        self.wanted, self._promoted, self._coming = frozenset(partitions), frozenset(promoted), frozenset(coming)
        for partition in self.wanted - self.by_partition.keys():
            self.by_partition[partition] = SupervisedStandby(partition)
        return [action for each in self._unwanted() for action in self._end(each, now_s)]

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two calls."""
        assert self.wanted <= self.by_partition.keys(), (self.wanted, self.by_partition.keys())
        for partition, each in self.by_partition.items():
            assert each.state not in (ProcessState.ABSENT, ProcessState.ENDED), (partition, each.state)
            assert each.live or not each.tasks, f"partition {partition} reports without a process"
            assert each.live or partition in self.wanted, f"partition {partition} waits for a start, and is not wanted"
            assert each.starts >= 1 or not each.live, (partition, each.state)

    def tick(self, now_s: float, busy: Collection[int]) -> list[SupervisionAction]:
        """Let time pass. ``busy``: the partitions whose stores a worker has open; they do not start yet."""
        actions = [action for each in self._unwanted() for action in self._end(each, now_s)]
        for partition, each in tuple(self.by_partition.items()):
            if each.state is ProcessState.STOPPING and now_s > each.kill_at_s:
                each.become(ProcessState.KILLED)
                actions.append(KillStandby(partition))
            elif each.state is ProcessState.RUNNING and partition in self._coming and each.tasks and not each.opens:
                each.opens = True
                actions.append(TellComing(partition))
            elif each.state is ProcessState.WAITING and partition not in busy and now_s >= each.due_s:
                each.started()
                actions.append(SpawnStandby(partition))
            each.opens = each.opens and partition in self._coming
        return actions

    def reported(self, partition: int, report: StandbyReport, now_s: float) -> list[SupervisionAction]:
        """Take a report of a process that is there."""
        each = self.by_partition[partition]
        each.take(report, now_s)
        if not each.tasks and each.end is None and each.stays and each.state is ProcessState.STOPPING:
            self._gone(each)
            return [KeepStandby(partition)]  # its stores are free, and it waits to be a worker
        if 0 <= each.behind <= CAUGHT_UP:
            each.ends, each.told = 0, ""
        actions: list[SupervisionAction] = []
        for name, task in each.tasks.items():
            if task.trouble and task.trouble != each.told:
                each.told = task.trouble
                actions.append(Tell(f"the standby of {name} has stopped, and its worker goes on: {each.told}"))
        return actions

    def exited(self, partition: int, end: ProcessExit, now_s: float) -> list[SupervisionAction]:
        """Take note that a process has ended."""
        each = self.by_partition[partition]
        was_asked = each.state in (ProcessState.STOPPING, ProcessState.KILLED) or partition not in self.wanted
        self._gone(each)
        if was_asked:
            return []
        each.ends += 1
        wait_s = self._policy.restart_wait_ms(each.ends) / 1000
        each.due_s = now_s + wait_s
        words = f"{end.text}: {end.words}"
        shown, each.told = "as the last time" if each.told == words else words, words
        return [Tell(f"the standby of partition {partition} has ended, {shown}; restart in {wait_s:.1f} s")]

    def _unwanted(self) -> list[SupervisedStandby]:
        return [self.by_partition[partition] for partition in sorted(self.by_partition.keys() - self.wanted)]

    def _end(self, each: SupervisedStandby, now_s: float) -> list[SupervisionAction]:
        """Ask a standby to end that is not wanted any more, unless that would throw away what it restores."""
        if each.state is ProcessState.WAITING:
            self._forget(each)
            return []
        is_promoted = each.partition in self._promoted
        if each.state not in (ProcessState.STARTING, ProcessState.RUNNING) or (
            is_promoted and each.restores(self._policy.standby_still_s, now_s)
        ):
            return []
        each.become(ProcessState.STOPPING)
        each.kill_at_s, each.stays = now_s + self._policy.standby_stop_s, is_promoted
        return [StopStandby(each.partition, stays=is_promoted)]

    def _gone(self, each: SupervisedStandby) -> None:
        each.tasks = {}
        if each.partition in self.wanted:
            each.become(ProcessState.WAITING)
        else:
            self._forget(each)

    def _forget(self, each: SupervisedStandby) -> None:
        each.become(ProcessState.ABSENT)
        del self.by_partition[each.partition]
