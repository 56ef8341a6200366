"""A deterministic source decides which records it takes, and at which logical time: log first, send later (D1, D2)."""

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass

from framework.core.actions import Action, ProcessExternal, ProcessRecords, Produce, Seek
from framework.core.commit_pipeline import BaseCore
from framework.core.deterministic.logical_clock import LogicalClock
from framework.core.deterministic.merge import ALL, Merge
from framework.core.events import ExternalBatch, Ran
from framework.core.lifecycle import DETERMINISTIC_TASK, TaskStatus
from framework.core.limits import Limits
from framework.core.task_topology import TaskWiring
from framework.errors import Halted
from protocol.changelog import ChangelogType, InputDecision, TakenRows
from protocol.control import encode_progress
from protocol.envelope import Header, MessageType, encode_header
from protocol.frames import last_logical
from protocol.ids import TopicPartition

NEVER = 1 << 62  # µs: no timer is set
BATCHES_MAX = 8  # on their way: processing need not wait for the log, nor each input decision for an append of its own
GATHERED = 4  # of a sink whose input is full: a transaction costs as much for one batch as for many


@dataclass(slots=True)
class Batch:
    """Rows of an external input on their way: decided, logged, processed, in any order; then their outputs are sent."""

    decision: InputDecision
    next_offset: int
    logged: bool = False  # the input decision is on its way or appended
    valid: bool = False  # it is known to be (C3)
    outputs: Ran | None = None


class SourceCore(BaseCore):
    """The state of a DeterministicCore, what it sends, and the part of it that is a source."""

    lifecycle = DETERMINISTIC_TASK

    def __init__(self, task: TaskWiring, limits: Limits, *, releases: bool) -> None:
        super().__init__(task, limits)
        self.releases = releases
        self.merge = Merge(task.name, task.channels, limits.early_memory_bytes_max)
        self.seen = self.merge.seen
        self.time = LogicalClock(limits.progress_interval_ms, limits.time_lease_ms)
        self._mono_us = 0
        self._appending: ChangelogType | None = None  # what is on its way to the changelog, or about to be
        self._processing = False
        self._batches: deque[Batch] = deque()  # of a source, in the order of their times
        self._more = False  # more rows follow those that were taken last
        self._replay: deque[InputDecision] = deque()  # decided by predecessors since the last commit
        self._taken = 0  # records that a source has ever taken
        self._last_t = 0  # of the last of them
        self._timer = 0  # when the next timer is due, as far as is known
        self._upto = -1  # the time up to which all is processed, timers included
        self._advanced = 0  # the time of the last progress message
        self._frozen_ms = self._rest_until_ms = 0  # when the last checkpoint was frozen, and how long none is due
        self._held = 0  # records for the outside that wait for an output release
        self._releasing: dict[TopicPartition, tuple[int, int]] = {}  # of each partition among them last seq and digest

    @property
    def wants_input(self) -> bool:
        """Whether the next message or external batch may be fed."""
        return (
            self.status is TaskStatus.RUNNING
            and not (self._processing or self._replay or self._stopping)
            and len(self._batches) < BATCHES_MAX
            and not (self._open_batch_is_full and self.pending_commit is not None)
            and not (self._batches and self._closes)  # a checkpoint is frozen between batches
        )

    @property
    def gathers(self) -> bool:
        """Whether what could be released waits for more: only while more is certain to come at once."""
        if not (self.releases and self._more and (self._processing or self.wants_input)):
            return False
        return sum(not batch.logged and batch.outputs is not None for batch in self._batches) < GATHERED

    @property
    def awaits_answers(self) -> bool:
        """Whether it matters when sends are acknowledged: only for commits and at the end."""
        return self._stopping or self.pending_commit is not None

    @property
    def _at_rest(self) -> bool:
        """Whether nothing is being processed: what is in the write batch was also sent."""
        return not (self._processing or self._replay or self._batches)

    @property
    def _closes(self) -> bool:
        """Whether a checkpoint is to be frozen as soon as all is at rest."""
        return self.pending_commit is None and (self._stopping or self._open_batch_is_full or self._is_due)

    @property
    @abstractmethod
    def _is_due(self) -> bool:
        """Whether it is time for a checkpoint."""

    @property
    def _emits_progress(self) -> bool:
        """Whether time itself has to go on here: in a source that other tasks read, or that has timers."""
        return self.task.is_source and not self._stop_closed and (bool(self.task.outputs) or self._timer < NEVER)

    @abstractmethod
    def _append_next(self) -> list[Action]:
        """Append the next message to the changelog, if none is on its way."""

    # --- what is sent ---

    def _frames(self, event: Ran) -> list[Action]:
        actions: list[Action] = []
        for partition, count, body in event.frames:
            header = Header(
                MessageType.FRAME, self.task.producer, self.generation, self.frozen + 1, self.next_seq[partition]
            )
            self.next_seq[partition] += count
            actions.append(self._send(partition, encode_header(header) + body))
        if event.outputs and not self.releases:
            self._token += 1
            actions.append(Produce(self._token, event.outputs))
        return actions

    def _progress_messages(self, t: int, *, besides: frozenset[TopicPartition] = frozenset()) -> list[Action]:
        """Announce that nothing up to ``t`` is still to come; channels whose last record says so get no message."""
        if t <= self._advanced:
            return []
        self._advanced = t
        ours = self.task.producer, self.generation, self.frozen + 1
        return [
            self._send(partition, encode_progress(*ours, seq, t, ALL))
            for partition, seq in self.next_seq.items()
            if partition not in besides
        ]

    # --- a source (D2) ---

    def _decide(self, event: ExternalBatch) -> list[Action]:
        """Give the rows their times. They are processed at once; the outputs wait for the input decision."""
        assert self.wants_input, f"{self.task.name}: a batch was fed in {self.status}"
        self._mono_us, (topic, partition) = event.mono_us, event.partition
        first_t = self.time.give(event.count, event.mono_us)
        rows = TakenRows(event.next_offset - 1, event.digest)
        decision = InputDecision(topic, partition, event.first_offset, event.count, first_t, self.time.floor, rows)
        self._batches.append(Batch(decision, event.next_offset))
        self._processing = True
        self.ended[event.partition], self._more = False, event.more
        process = ProcessExternal(event.partition, event.first_offset, event.count, first_t, replay=False)
        return [*self._append_next(), process]

    def _batches_done(self) -> list[Action]:
        """Send the outputs of batches, in order: of those that are processed and whose input decisions are valid."""
        actions: list[Action] = []
        while self._batches and self._batches[0].valid and self._batches[0].outputs is not None:
            decision, outputs = self._batches[0].decision, self._batches[0].outputs
            self._took(decision, self._batches.popleft().next_offset)
            ends = {partition: last_logical(body)[0] for partition, _, body in outputs.frames}
            besides = frozenset(partition for partition, t in ends.items() if t == decision.last_t)
            actions += [*self._frames(outputs), *self._progress_messages(decision.last_t, besides=besides)]
        return actions

    def _took(self, decision: InputDecision, next_offset: int) -> None:
        self.external[TopicPartition(decision.topic, decision.partition)] = next_offset
        self._taken += decision.records
        self._last_t = decision.last_t

    def _replay_next(self) -> list[Action]:
        """Process the next input decision of a predecessor; after the last one take new rows."""
        if not self._replay:
            seeks: list[Action] = [Seek(partition, offset) for partition, offset in self.external.items()]
            return seeks + self._pass(self.time.floor) if self.task.is_source else seeks
        topic, partition, first_offset, records, first_t, _, rows = self._replay[0]
        source = TopicPartition(topic, partition)
        if first_offset < self.external.get(source, first_offset + 1):
            raise Halted(
                f"{self.task.name}: an input decision in its changelog takes {source} from offset {first_offset} on, "
                f"but the one before ends at {self.external.get(source)}: {source.topic} was compacted or thinned and "
                "its later records were read instead of earlier ones, or the changelog is damaged. Restore the "
                "topic, or start the job under another name"
            )
        self.seen["decisions replayed"] += 1
        self._processing = True
        return [ProcessExternal(source, first_offset, records, first_t, replay=True, rows=rows)]

    def _emit_progress(self) -> list[Action]:
        """Advance logical time where no record does it."""
        if self.status is not TaskStatus.RUNNING or not (self._at_rest and self._emits_progress):
            return []
        if not self.time.emit_due(self._mono_us):
            return []
        return self._pass(self.time.advance(self._mono_us))

    def _pass(self, t: int) -> list[Action]:
        """Nothing up to ``t`` is still to come: timers fire first, then all downstream may know."""
        if t <= self._advanced or t < self._timer:
            return self._progress_messages(t)
        self._processing = True
        return [ProcessRecords((), t)]
