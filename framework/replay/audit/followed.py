"""An audit that goes on beside a live job: from each commit of its tasks to a later one, the step made again.

Nothing is recomputed from the beginning: a step starts from the state that the changelogs had at the checkpoint before,
which the step before it has compared. What was compared is written down before the copies go on, so an audit that is
killed goes on with the same step or the next one.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from grete.api.jobs.job import Job
from grete.batch.history_task import HistoryTask
from grete.closable import Closable
from grete.errors import ConfigError, OffsetOutOfRange
from grete.execution.job_task import JobTask
from grete.ports import JobLogReader
from grete.replay.audit.audited_task import AuditedTask
from grete.replay.audit.course import AlignedCourse, AuditCourse
from grete.replay.audit.logical_course import LogicalCourse
from grete.replay.audit.sample import Sample
from grete.replay.audit.state_copy import StateCopy, StateReplaced
from grete.replay.audit.steps import AuditStep, PlaceLost, RemadeMessage
from grete.settings import Settings
from grete.state.pins.pinning import output_counts
from grete.state.pins.start_pinning import know_starts
from grete.state.read.checkpoints.commits import all_wirings, newest_commit
from grete.state.read.checkpoints.snapshots import Snapshot, id_of_all, snapshots, snapshots_at
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.store_directory import make_private

LOOKS_MAX = 10  # looks in a row at which no checkpoint can be found, until that is an error

_BASE = "compared.json"


class AuditBegun(NamedTuple):
    """The audit takes the state of a checkpoint as it is. ``why``: it has lost its place; empty: it is new."""

    checkpoint_id: int
    why: str


class _Noted(msgspec.Struct, frozen=True):
    """Progress of an audit, and messages sent that no consumer has taken yet. Without the latter it is a list."""

    base: list[tuple[int, int]]  # offset and checkpoint of each task's commit
    carried: list[RemadeMessage]


class FollowedAudit(Closable):
    """Call ``look`` again and again. It only reads the log; ``directory`` has copies of the state."""

    def __init__(self, job: Job, log: JobLogReader, settings: Settings, directory: Path, share: float) -> None:
        """``share`` of the keys is drawn. Raises TransientError if another audit runs in the directory."""
        self._job, self._log, self._directory = job, log, directory
        know_starts(job, log)
        make_private(directory)
        memory, outside, sample = RocksMemory(settings.rocksdb_bytes), output_counts(job, log), Sample(job.name, share)
        self._tasks: list[AuditedTask] = []
        try:
            for stage, partition in job.tasks():
                declared = JobTask(stage, job.topology(), partition)
                task = HistoryTask(declared, settings, outside, outputs=False, makes_calls=False)
                copy = StateCopy(directory / f"{stage.name}-{partition}", stage, memory)
                self._tasks.append(AuditedTask(task, copy, sample))
        except BaseException:
            self.close()
            raise
        course = LogicalCourse if "deterministic" in job.modes else AlignedCourse
        self._course: AuditCourse = course(job, log, self._tasks)
        self._base: list[Snapshot] | None = None
        self._lost: str | None = None  # why it is beginning, if it is
        self._failed_looks = 0

    def look(self) -> AuditStep | AuditBegun | None:
        """Make the next step, if the job has come further; None: it has not.

        Raises ConfigError, TaskError, TransientError; then the next look does the same again.
        """
        newest = self._newest()
        if newest is None:
            return None
        if self._base is None and (why := self._resume() if self._lost is None else self._lost) is not None:
            return self._begin(newest, why)
        assert self._base is not None
        try:
            made = self._course.step(self._base, newest)
            if made is None:
                return None
            step, goal = made
            if self._course.lost:
                self._lose(self._course.lost)
            else:
                self._take(goal)
        except (PlaceLost, StateReplaced) as error:
            return self._begin(newest, str(error))
        except OffsetOutOfRange as error:
            return self._begin(newest, f"what comes next was trimmed before it was compared: {error}")
        return step

    def _newest(self) -> list[Snapshot] | None:
        """Return the newest checkpoint of all tasks; None: there is none yet, or it was trimmed while it was read."""
        if any(newest_commit(self._log, wiring) is None for wiring in all_wirings(self._job)):
            return None
        try:
            found = snapshots(self._log, self._job)
        except ConfigError:
            self._failed_looks += 1
            if self._failed_looks == LOOKS_MAX:
                raise
            return None
        self._failed_looks = 0
        return found

    # --- Where it is ---

    def _begin(self, newest: list[Snapshot], why: str) -> AuditBegun | None:
        """Take the state as it is, and go on from there. None: it must wait for that."""
        if self._lost is None:
            self._lose(why)
        base = self._course.begin(newest)
        if base is None:
            return None
        for task, snapshot in zip(self._tasks, base, strict=True):
            task.copy.build(self._log, snapshot)
        self._note(base)
        self._base, why, self._lost = base, self._lost or "", None
        return AuditBegun(id_of_all(base), why)

    def _lose(self, why: str) -> None:
        """Forget the place."""
        self._base, self._lost = None, why
        (self._directory / _BASE).unlink(missing_ok=True)

    def _resume(self) -> str | None:
        """Go on from what was compared last; return why that cannot be, empty: nothing was compared yet."""
        try:
            found = msgspec.json.decode((self._directory / _BASE).read_bytes(), type=list[tuple[int, int]] | _Noted)
        except FileNotFoundError:
            return ""
        except msgspec.DecodeError as error:
            return f"{self._directory / _BASE} cannot be read: {error}"
        noted, carried = (found.base, found.carried) if isinstance(found, _Noted) else (found, [])
        if len(noted) != len(self._tasks):
            return "the job has another number of tasks"
        try:
            base = [
                snapshot
                for stage in self._job.stages
                for _, snapshot in snapshots_at(
                    self._log,
                    self._job,
                    stage,
                    dict(enumerate(offset for offset, _ in noted[self._job.tasks_of(stage.ordinal)])),
                )
            ]
            if [each.commit.checkpoint_id for each in base] != [checkpoint_id for _, checkpoint_id in noted]:
                return "the log is another one"
            self._bring(base)
        except (ConfigError, OffsetOutOfRange, StateReplaced) as error:
            return str(error)
        self._base, self._course.carried = base, carried
        return None

    def _take(self, goal: list[Snapshot]) -> None:
        """Go on from a checkpoint that was compared."""
        self._base = None  # until it is noted, and all copies are there
        self._note(goal)
        self._bring(goal)
        self._base = goal

    def _bring(self, base: Sequence[Snapshot]) -> None:
        for task, snapshot in zip(self._tasks, base, strict=True):
            task.copy.bring_to(self._log, snapshot)

    def _note(self, base: Sequence[Snapshot]) -> None:
        """Write down how far all was compared, in one step."""
        part = self._directory / f"{_BASE}.part"
        with part.open("wb") as file:
            noted, carried = [(each.offset, each.commit.checkpoint_id) for each in base], self._course.carried
            file.write(msgspec.json.encode(_Noted(noted, carried) if carried else noted))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._directory / _BASE)

    def close(self) -> None:
        """Close the copies."""
        for task in self._tasks:
            task.close()
