"""A deterministic source decides which records it takes, and at which logical time: log first, send later (D1, D2)."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from grete.core.actions import ProcessExternal, ProcessIdle, Seek
from grete.core.deterministic.logical_clock import LogicalClock
from grete.core.events import ExternalBatch, InputIdle, Ran
from grete.core.external_inputs import ExternalInputs
from grete.core.limits import GATHERED_BATCHES, SOURCE_BATCHES_MAX
from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.changelog import InputDecision, TakenRows
from grete.protocol.commit import DeterministicCommit
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import IdleNote

Decision = InputDecision | IdleNote


@dataclass(slots=True)
class Batch:
    """Rows of an external input on their way: decided, logged, processed, in any order; then their outputs are sent.

    Or no rows, but that an input is idle: only a clock knows it, and windows may close by it (E4).
    """

    decision: Decision
    next_offset: int = -1
    logged: bool = False  # the input decision is on its way or appended
    valid: bool = False  # it is known to be (C3)
    outputs: list[Ran] = field(default_factory=list)  # made and not sent; more follow if timers are left (E10)


class Source:
    """The rows that a task takes of its external inputs, from their decision to their outputs.

    A successor first replays what its predecessors have decided since the last commit.
    """

    def __init__(self, name: str, external: ExternalInputs, time: LogicalClock) -> None:
        self.batches: deque[Batch] = deque()  # in the order of their times
        self.replay: deque[Decision] = deque()  # decided by predecessors since the last commit
        self.more = False  # more rows follow those that were taken last
        self.taken = 0  # records that the task has ever taken
        self.last_t = 0  # of the last decision
        self._name = name  # of the task, for errors
        self._external = external
        self._time = time

    @property
    def at_rest(self) -> bool:
        """Whether nothing that was decided waits: not for its rows, not for its outputs, not for the log."""
        return not (self.replay or self.batches)

    @property
    def has_room(self) -> bool:
        """Whether new rows may be taken."""
        return not self.replay and len(self.batches) < SOURCE_BATCHES_MAX

    @property
    def gathers(self) -> bool:
        """Whether few batches could be released as soon as they are logged, and more rows come at once."""
        return self.more and sum(not each.logged and bool(each.outputs) for each in self.batches) < GATHERED_BATCHES

    @property
    def may_be_cut(self) -> bool:
        """Whether a checkpoint may close while timers of the last batch are left: its outputs are valid and sent.

        Not in a replay: consumers may have seen all that the predecessor decided.
        """
        batches = self.batches
        return not (self.replay or len(batches) > 1) and all(each.valid and not each.outputs for each in batches)

    def decide(self, event: ExternalBatch) -> ProcessExternal:
        """Give the rows their times. They are processed at once; the outputs wait for the input decision."""
        topic, partition = event.partition
        first_t = self._time.give(event.count, event.mono_us)
        rows = TakenRows(event.next_offset - 1, event.digest)
        decision = InputDecision(topic, partition, event.first_offset, event.count, first_t, self._time.floor, rows)
        self.batches.append(Batch(decision, event.next_offset))
        self._external.ended[event.partition], self.more = False, event.more
        return ProcessExternal(event.partition, event.first_offset, event.count, first_t, replay=False)

    def decide_idle(self, event: InputIdle) -> ProcessIdle:
        """Give it a time that an input is idle, or has ended: a note of it is logged like a decision."""
        note = IdleNote(*event.partition, self._time.give(1, event.mono_us), event.ended)
        self.batches.append(Batch(note))
        return ProcessIdle(event.partition, note.t, note.ended)

    def log(self, *, processed: bool) -> list[Decision]:
        """Return the decisions that are to be appended now; ``processed``: only those whose outputs are here."""
        batches = [batch for batch in self.batches if not batch.logged and (batch.outputs or not processed)]
        for batch in batches:
            batch.logged = True
        return [batch.decision for batch in batches]

    def logged_are_valid(self) -> None:
        """Note that all input decisions that were appended count (C3)."""
        for batch in self.batches:
            batch.valid = batch.logged

    def ran(self, event: Ran) -> None:
        """Keep what was made of the last batch."""
        made = self.batches[-1].outputs
        assert not made or made[-1].left, made  # more follows only behind timers that were left (E10)
        made.append(event)
        self.more &= not event.left  # no more rows come at once

    def done(self) -> list[tuple[Decision | None, Ran]]:
        """Remove and return the outputs that may go, in order: their input decisions are valid.

        The decision of a batch is with the last of them; None: others follow.
        """
        done: list[tuple[Decision | None, Ran]] = []
        while self.batches and self.batches[0].valid and (outputs := self.batches[0].outputs):
            self.batches[0].outputs = []
            done += [(None, part) for part in outputs]
            if outputs[-1].left:
                break
            batch = self.batches.popleft()
            self._took(batch.decision, batch.next_offset)
            done[-1] = batch.decision, outputs[-1]
        return done

    def cut(self, done: int, next_offset: int) -> list[Seek]:
        """Let the last batch end behind its first ``done`` rows; return where to read the others again (E10).

        Nothing of these was seen, so they are decided on again. Later times than theirs follow.
        """
        batch = self.batches.popleft()
        decision = batch.decision
        if not isinstance(decision, InputDecision):
            self._took(decision, next_offset)
            return []
        self._took(decision._replace(records=done), next_offset)
        source = TopicPartition(decision.topic, decision.partition)
        return [Seek(source, next_offset)] if done < decision.records else []

    def replay_next(self) -> ProcessExternal | ProcessIdle:
        """Process the next decision of a predecessor. Raises Halted if it does not follow the one before."""
        decision = self.replay[0]
        if isinstance(decision, IdleNote):
            source = TopicPartition(decision.topic, decision.partition)
            return ProcessIdle(source, decision.t, decision.ended)
        topic, partition, first_offset, records, first_t, _, rows = decision
        source = TopicPartition(topic, partition)
        if first_offset < self._external.position.get(source, first_offset + 1):
            raise Halted(
                f"{self._name}: an input decision in its changelog takes {source} from offset {first_offset} on, "
                f"but the one before ends at {self._external.position.get(source)}: {source.topic} was compacted or "
                "thinned and its later records were read instead of earlier ones, or the changelog is damaged. Restore "
                "the topic, or start the job under another name",
                task=self._name,
                code=HaltCode.INPUT_CHANGED,
            )
        last_t = decision.last_t if decision.last_t >= first_t + records else -1
        return ProcessExternal(source, first_offset, records, first_t, replay=True, rows=rows, last_t=last_t)

    def replayed(self, next_offset: int) -> None:
        """Note that a decision is processed again; its input goes on at ``next_offset``."""
        self._took(self.replay.popleft(), next_offset)

    def resume(self, commit: DeterministicCommit, decisions: Sequence[Decision]) -> int:
        """Go on from a commit, and what was decided since; return the time of the last decision."""
        self.replay.extend(decisions)
        self.taken, self.last_t = commit.position, commit.last_t
        return decisions[-1].last_t if decisions else commit.last_t

    def check_invariants(self, *, committing: bool) -> None:
        """Raise AssertionError unless this holds between any two steps; ``committing``: a freeze is not committed."""
        batches, replay = self.batches, self.replay
        if not batches:
            return
        assert not replay and len(batches) <= SOURCE_BATCHES_MAX, (len(batches), len(replay))
        times = [self.last_t, *(t for batch in batches for t in (batch.decision.first_t, batch.decision.last_t))]
        assert times == sorted(times), times
        assert not any(batch.valid and not batch.logged for batch in batches), batches
        assert not (committing and any(batch.logged for batch in batches)), batches

    def _took(self, decision: Decision, next_offset: int) -> None:
        if isinstance(decision, InputDecision):
            self._external.position[TopicPartition(decision.topic, decision.partition)] = next_offset
            self.taken += decision.records
        assert decision.last_t >= self.last_t, (decision, self.last_t)  # logical time only grows
        self.last_t = decision.last_t
