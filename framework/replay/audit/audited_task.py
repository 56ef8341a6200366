"""One task's step from a commit to a later one, made again by its own code over a copy of its state, and compared."""

from collections.abc import Sequence
from functools import partial as applied

from grete.batch.engine import begun
from grete.batch.frames import Frame
from grete.batch.history_task import HistoryTask
from grete.errors import ConfigError
from grete.execution.build import store_names
from grete.execution.timing.reserved_stores import FIRING, META, OUTBOX, STREAM_TIME
from grete.ports import LogReader
from grete.protocol.commit import Commit
from grete.quoting import key_text
from grete.replay.audit.aligned_steps import AlignedSteps
from grete.replay.audit.logical_steps import LogicalSteps
from grete.replay.audit.sample import Sample
from grete.replay.audit.sent import SentUpTo
from grete.replay.audit.state_copy import EntryPlace, StateCopy, StepWrites, writes_between
from grete.replay.audit.steps import ComparedStep, RemadeMessage, TaskSteps, WrongEntry
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.read.live_entries import event_time_of
from grete.stores.overlay.expiring_store import horizon


class AuditedTask:
    """One task. When all tasks have made a step, their owner brings ``copy`` to its end."""

    def __init__(self, task: HistoryTask, copy: StateCopy, sample: Sample) -> None:
        self.copy, self.wiring = copy, task.job_task.wiring
        self._stage, self._partition = task.job_task.stage, task.job_task.partition
        self._overlay = task.overlay(copy.store)
        self._sample = sample if sample.draws and not self.wiring.outputs else None  # others need all of its outputs
        self._found: StepWrites = {}  # of the step made last
        self._steps: TaskSteps
        if self.wiring.deterministic:
            self._steps = LogicalSteps(task, self._overlay)
        else:
            self._steps = AlignedSteps(task, self._sample)

    def step(
        self, log: LogReader, before: Commit, after: Snapshot, taken: Sequence[RemadeMessage]
    ) -> tuple[list[Frame], ComparedStep]:
        """Make the step from the commit of the copy to a later one; return what the task sends, and what differs.

        ``taken``: from the tasks before it. Raises TaskError, PlaceLost, and as ``writes_between``.
        """
        at = self.copy.at
        assert at is not None, f"{self.wiring.name}: a step begins at a state"
        found = self._found = writes_between(log, at.offset, after)
        if self._value(found, META, FIRING) is not None:
            raise ConfigError(
                f"{self.wiring.name}: checkpoint {after.commit.checkpoint_id} closed while many timers were due, and "
                "some of them had fired: how many is not recorded. Begin the audit again behind it",
                task=self.wiring.name,
            )
        self._overlay.drop_all()
        made = begun(self._steps.task(log, at.offset, before, after), self._overlay)
        set_by_init = self._set_by_init()
        sent = self._steps.run(made, log, before, after.commit, taken, applied(self._value, found))
        made.processor.before_freeze(after.commit.checkpoint_id)
        self._overlay.freeze()
        written = {(store, key): value for store, key, value in self._overlay.frozen_items()}
        made.processor.close()
        self._check_keyed(written)
        least = horizon(event_time_of(self._value(found, META, STREAM_TIME)))
        keys, differences = self._differences(found, written, set_by_init, least)
        self._overlay.drop_all()
        return sent, ComparedStep(made.records.total(), keys, differences)

    def reached(self, snapshot: Snapshot) -> SentUpTo:
        """Return the position of a deterministic task: at the commit of the copy, or at the end of the last step."""
        at = self.copy.at
        writes = {} if at is not None and at.offset == snapshot.offset else self._found
        return SentUpTo.of(self.wiring, snapshot.commit, applied(self._value, writes))

    def _set_by_init(self) -> frozenset[EntryPlace]:
        """Return the entries that ``init`` sets, as it has at each start of the live task, whenever that was.

        They are not compared.
        """
        self._overlay.freeze_part()
        return frozenset((store, key) for store, key, _ in self._overlay.frozen_items())

    def _differences(
        self, found: StepWrites, made: StepWrites, set_by_init: frozenset[EntryPlace], least: bytes
    ) -> tuple[int, list[WrongEntry]]:
        """Return the number of entries compared, and those that differ; ``least``: as ``horizon`` gives it."""
        names, expiring = store_names(self._stage), self._stage.expiring_ids()
        keys, differences = 0, list[WrongEntry]()
        for store, key in sorted(made.keys() | found.keys()):
            if (store, key) in set_by_init or not self._steps.is_compared(store, key):
                continue
            keys += 1
            live, again = self._value(found, store, key), self._value(made, store, key)
            if store in expiring:  # when it is deleted depends on commits
                live, again = (None if cell is None or cell < least else cell for cell in (live, again))
            if live != again:
                differences.append(WrongEntry(self._stage.name, self._partition, names[store], key, live, again))
        return keys, differences

    def close(self) -> None:
        """Close the copy."""
        self._overlay.drop_all()
        self.copy.close()

    def _value(self, writes: StepWrites, store: int, key: bytes) -> bytes | None:
        """Return an entry as it is after some writes over the copy."""
        return writes[store, key] if (store, key) in writes else self.copy.store.get(store, key)

    def _check_keyed(self, made: StepWrites) -> None:
        """Refuse a sample if the records of its keys write entries of others, which those write, too."""
        if self._sample is None:
            return
        for store, key in made:
            if store not in (META, OUTBOX) and not self._sample.has_entry(store, key):
                name = store_names(self._stage)[store]
                raise ConfigError(
                    f"stage {self._stage.name}: its store {name} is not keyed as its records are: records of drawn "
                    f"keys have written the entry {key_text(key)}, whose own key is not drawn, so other records may "
                    "write it, too: leave --share out",
                    stage=self._stage.name,
                )
