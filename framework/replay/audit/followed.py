"""An audit that goes on beside a live job: from one checkpoint of all tasks to the next, each step made again.

Nothing is recomputed from the beginning: a step starts from the state that the changelogs had at the checkpoint before,
which the step before it has compared. What was compared is written down before the copies go on, so an audit that is
killed goes on with the same step or the next one.
"""

import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from framework.api.job import Job
from framework.batch.channels import stages_in_order
from framework.batch.frames import Frame
from framework.errors import ConfigError, OffsetOutOfRange
from framework.ports import JobLogReader
from framework.replay.audit.audited_task import AuditedTask, WrongEntry, offsets
from framework.replay.audit.sample import Sample
from framework.replay.audit.state_copy import StateReplaced
from framework.settings import Settings
from framework.state.commit_search import at_most
from framework.state.commits import all_wirings, newest_commit
from framework.state.pinning import output_counts
from framework.state.snapshots import Snapshot, id_of_all, snapshots, snapshots_at
from framework.state.start_pinning import know_starts
from framework.stores.rocksdb_memory import RocksMemory
from framework.stores.store_directory import make_private

STEP_RECORDS_MAX = 100_000  # of a step, from outside; one checkpoint with more of them is a step, too
SHOWN_MAX = 100  # differences of a step that are kept: a person can look at them
LOOKS_MAX = 10  # looks in a row at which no checkpoint can be found, until that is an error

_BASE = "compared.json"


class AuditStep(NamedTuple):
    """One step of all tasks. ``wrong``: stage → how many entries differ; ``differences``: the first of them."""

    after: int  # checkpoint ids
    checkpoint_id: int
    records: int
    keys: int
    wrong: Counter[str]
    differences: list[WrongEntry]
    caught_up: bool  # it has compared all that was committed when it began


class AuditBegun(NamedTuple):
    """The audit takes the state of a checkpoint as it is. ``why``: it has lost its place; empty: it is new."""

    checkpoint_id: int
    why: str


class FollowedAudit:
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
                place = directory / f"{stage.name}-{partition}"
                task = AuditedTask(job, stage, partition, settings, outside, place, memory, sample)
                self._tasks.append(task)
        except BaseException:
            self.close()
            raise
        self._base: list[Snapshot] | None = None
        self._failed_looks = 0

    def look(self) -> AuditStep | AuditBegun | None:
        """Make the next step, if the job has come further; None: it has not.

        Raises ConfigError, TaskError, TransientError; then the next look does the same again.
        """
        newest = self._newest()
        if newest is None:
            return None
        if self._base is None and (why := self._resume()) is not None:
            return self._begin(newest, why)
        assert self._base is not None
        goal, caught_up = self._goal(self._base, newest)
        if [each.offset for each in goal] == [each.offset for each in self._base]:
            return None
        try:
            step = self._step(self._base, goal, caught_up=caught_up)
            self._take(goal)
        except StateReplaced as error:
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

    def _begin(self, newest: list[Snapshot], why: str) -> AuditBegun:
        """Take the state as it is, and go on from there."""
        self._base = None
        (self._directory / _BASE).unlink(missing_ok=True)
        for task, snapshot in zip(self._tasks, newest, strict=True):
            task.copy.build(self._log, snapshot)
        self._note(newest)
        self._base = newest
        return AuditBegun(id_of_all(newest), why)

    def _resume(self) -> str | None:
        """Go on from what was compared last; return why that cannot be, empty: nothing was compared yet."""
        try:
            noted = msgspec.json.decode((self._directory / _BASE).read_bytes(), type=list[tuple[int, int]])
        except FileNotFoundError:
            return ""
        except msgspec.DecodeError as error:
            return f"{self._directory / _BASE} cannot be read: {error}"
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
        self._base = base
        return None

    def _take(self, goal: list[Snapshot]) -> None:
        """Go on from a checkpoint that was compared."""
        self._note(goal)
        self._base = None  # until all copies are there
        self._bring(goal)
        self._base = goal

    def _bring(self, base: Sequence[Snapshot]) -> None:
        for task, snapshot in zip(self._tasks, base, strict=True):
            task.copy.bring_to(self._log, snapshot)

    def _note(self, base: Sequence[Snapshot]) -> None:
        """Write down how far all was compared, in one step."""
        part = self._directory / f"{_BASE}.part"
        with part.open("wb") as file:
            file.write(msgspec.json.encode([(each.offset, each.commit.checkpoint_id) for each in base]))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._directory / _BASE)

    # --- A step ---

    def _goal(self, base: list[Snapshot], newest: list[Snapshot]) -> tuple[list[Snapshot], bool]:
        """Return a later checkpoint that is not too far, and whether it is the newest."""
        newest = goal = _forward(base, newest)
        low, high = id_of_all(base), id_of_all(newest)
        while _records(base, goal) > STEP_RECORDS_MAX and high - low > 1:
            middle = (low + high) // 2
            found = self._at_most(base, middle)
            if found is None or not _records(base, found):
                low = middle
            else:
                goal, high = found, middle
        return goal, goal is newest

    def _at_most(self, base: list[Snapshot], checkpoint_id: int) -> list[Snapshot] | None:
        """Return a checkpoint up to this one, or None."""
        wirings = all_wirings(self._job)
        inner = [wiring for wiring in wirings if not wiring.is_source] or wirings
        with contextlib.suppress(ConfigError):
            found = at_most(self._log, inner[0], checkpoint_id).commit.checkpoint_id
            return _forward(base, snapshots(self._log, self._job, found))
        return None

    def _step(self, base: list[Snapshot], goal: list[Snapshot], *, caught_up: bool) -> AuditStep:
        """Make one step of all tasks again, each after those that it reads."""
        frames = defaultdict[tuple[int, int], list[Frame]](list)  # stage, partition → what it reads
        consumers = {stream.topic: stream.consumer for stream in self._job.topology().streams}
        records = keys = 0
        wrong = Counter[str]()
        differences: list[WrongEntry] = []
        for stage in stages_in_order(self._job):
            for partition, number in enumerate(range(*self._job.tasks_of(stage.ordinal).indices(len(self._tasks)))):
                task, before, after = self._tasks[number], base[number], goal[number]
                taken = frames.pop((stage.ordinal, partition), [])
                if before.offset == after.offset and not taken:
                    continue
                sent, compared = task.step(self._log, before.commit, after, taken)
                for frame in sent:
                    frames[consumers[frame.partition.topic], frame.partition.partition].append(frame)
                records, keys = records + compared.records, keys + compared.keys
                wrong[stage.name] += len(compared.differences)
                differences += compared.differences[: SHOWN_MAX - len(differences)]
        return AuditStep(id_of_all(base), id_of_all(goal), records, keys, wrong, differences, caught_up)

    def close(self) -> None:
        """Close the copies."""
        for task in self._tasks:
            task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the copies."""
        self.close()


def _forward(base: list[Snapshot], found: list[Snapshot]) -> list[Snapshot]:
    """Return a checkpoint at which no task is behind ``base``: one that nothing reads may have gone on alone."""
    return [max(pair, key=lambda each: each.offset) for pair in zip(base, found, strict=True)]


def _records(base: Sequence[Snapshot], goal: Sequence[Snapshot]) -> int:
    """Return how many offsets from outside are between two checkpoints."""
    return sum(
        end - offsets(before.commit).get(partition, 0)
        for before, after in zip(base, goal, strict=True)
        for partition, end in offsets(after.commit).items()
    )
