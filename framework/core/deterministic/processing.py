"""The input of a deterministic task's code, one action at a time, and the outputs that leave behind it (D1, D2)."""

from collections.abc import Sequence

from grete.core import actions as do
from grete.core.deterministic.call_results import CallResults
from grete.core.deterministic.closing import Closing
from grete.core.deterministic.logical_clock import LogicalClock
from grete.core.deterministic.merge import Merge
from grete.core.deterministic.outputs import LogicalSender
from grete.core.deterministic.source import Source
from grete.core.deterministic.write_ahead import WriteAhead
from grete.core.events import ExternalBatch, InputIdle, Ran
from grete.core.external_inputs import ExternalInputs
from grete.core.graph.task_topology import TaskWiring
from grete.protocol.record_batch import RecordBatch


class LeftTimers:
    """Timers that are due and have not fired: they come before all else, with a start and with a commit, too (E10)."""

    def __init__(self) -> None:
        self.left = False
        self.begins = False  # nothing was processed since the start, but timers that were left
        self.starting = False  # nor these
        self.done, self.next_offset = 0, -1  # what was processed before them, as of Ran
        self.cut: list[do.Seek] | None = None  # a decision ends with the commit that is under way: where to read then

    def begin(self) -> None:
        """Begin a life: of a predecessor's timers only a call can tell, so some may be left."""
        self.left = self.starting = self.begins = True

    def ran(self, event: Ran) -> tuple[bool, bool]:
        """Take an answer of the code; return whether timers were left, and whether this ends the begin of a life."""
        was_left, begun = self.left, self.begins and not event.left
        self.left, self.starting, self.begins = event.left, False, self.begins and event.left
        self.done, self.next_offset = event.done, event.next_offset
        return was_left, begun

    @property
    def may_fire(self) -> bool:
        """Whether the next timer may fire.

        While a decision ends with a commit, none may: the output of the timer would be later than that end.
        """
        return self.left and self.done >= 0 and self.cut is None

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        assert self.begins or not self.starting, (self.begins, self.starting)
        assert self.left or not self.begins, self.begins  # the first call ends the begin, or leaves some
        assert self.left or self.cut is None, self.cut  # only before timers is a decision cut


class Processing:
    """Decisions of a predecessor, then new rows, merged records, or only time that passes. ``active``: one of them is.

    ``checkpoint_id``: the open checkpoint's, which what is sent carries.
    """

    def __init__(
        self,
        task: TaskWiring,
        external: ExternalInputs,
        source: Source,
        merge: Merge,
        time: LogicalClock,
        outputs: LogicalSender,
    ) -> None:
        self.active = False
        self.timers = LeftTimers()
        self.upto = -1  # the time up to which all records of channels are processed
        self._timer = 0  # when the code has something to tell though nothing comes, as far as is known
        self._batches: Sequence[RecordBatch | do.MergedWatermarks] = ()  # processed last
        self._task, self._external = task, external
        self._source, self._merge, self._time, self._outputs = source, merge, time, outputs

    def take(self, checkpoint_id: int) -> list[do.Action]:
        """Process what may go (D1); once nothing may, tell downstream up to when nothing will come."""
        batches, upto = self._merge.take()
        if batches or self._timer <= upto > self.upto:
            self.active, self.upto, self._batches = True, max(self.upto, upto), batches
            return [do.ProcessRecords(batches, upto)]
        self.upto = max(self.upto, upto)
        progress = self._outputs.progress(self.upto, checkpoint_id)
        return [*progress, *self._outputs.to_sinks(self.upto), *self._merge.seeks()]

    def decide(self, event: ExternalBatch | InputIdle) -> do.Action:
        """Take rows, or that an input is idle: the decision goes to the log while it is processed (D2)."""
        self.active = True
        self._merge.seen["inputs idle"] += isinstance(event, InputIdle)
        return self._source.decide_idle(event) if isinstance(event, InputIdle) else self._source.decide(event)

    def begin(self, checkpoint_id: int) -> list[do.Action]:
        """Go on from a commit: first what it has left of timers that were due, if time goes on here."""
        if not self._task.keeps_time:
            return self.go_on(checkpoint_id)
        self.active = True
        self.timers.begin()
        return []

    def go_on(self, checkpoint_id: int) -> list[do.Action]:
        """Process the next decision of a predecessor; after the last one take new rows."""
        if self._source.replay:
            action = self._source.replay_next()
            replayed = "notes replayed" if isinstance(action, do.ProcessIdle) else "decisions replayed"
            self._merge.seen[replayed] += 1
            self.active = True
            return [action]
        seeks: list[do.Action] = [do.Seek(partition, offset) for partition, offset in self._external.position.items()]
        return seeks + self.advance(self._time.floor, checkpoint_id) if self._task.is_source else seeks

    def advance(self, t: int, checkpoint_id: int) -> list[do.Action]:
        """Nothing up to ``t`` is still to come: the code tells first what is due, then all downstream may know."""
        if t <= self._outputs.advanced or t < self._timer:
            return self._outputs.progress(t, checkpoint_id)
        self.active = True
        return [do.ProcessRecords((), t)]

    def ran(self, event: Ran, checkpoint_id: int) -> list[do.Action]:
        """Send what the code has made: of new rows not before their decision is valid."""
        assert self.active, event  # it answers what was asked
        self.active, (was_left, begun) = event.left, self.timers.ran(event)
        self._timer, self._time.timer = min(event.timer, event.wall), event.wall
        self._outputs.hold(event)
        if self._source.batches:
            self._source.ran(event)
            return self.decided(checkpoint_id)
        actions = self._outputs.send(event, checkpoint_id)
        if event.left:
            return actions
        if begun:
            return actions + self.go_on(checkpoint_id)
        if self._source.replay:
            self._source.replayed(event.next_offset)
            return [*actions, *self._outputs.to_sinks(self._source.last_t), *self.go_on(checkpoint_id)]
        if self._task.channels:
            return actions + self._outputs.to_sinks(self.upto)
        if was_left:
            actions += self._outputs.to_sinks(self._source.last_t)
            return actions + self.advance(self._time.floor, checkpoint_id)
        return actions + self._outputs.progress(self._time.floor, checkpoint_id)

    @property
    def covered_t(self) -> int:
        """The time in µs up to which all of the channels is processed, timers included; 0: not known."""
        return 0 if self.timers.left else max(0, self.upto)

    @property
    def has_left(self) -> bool:
        """Whether timers are left. Of a predecessor's timers only a call can tell: before the first one, False."""
        return self.timers.may_fire and not self.timers.starting

    @property
    def may_be_cut(self) -> bool:
        """Whether a checkpoint may close now, between two slices of timers."""
        return self.timers.may_fire and self._source.may_be_cut

    def cut(self) -> None:
        """A checkpoint closes: if timers are left, it has nothing of what comes behind them."""
        timers = self.timers
        if not timers.left:
            return
        if self._source.batches:
            timers.cut = self._source.cut(timers.done, timers.next_offset)
        elif self._batches:
            last = self._batches[timers.done - 1]
            assert isinstance(last, do.MergedWatermarks), "timers of merged records are left to no other call"
            self._merge.give_back(timers.done)
            self.upto, self._batches = last.t - 1, ()

    def committed(self) -> list[do.Action]:
        """The commit is valid: go on with the timers, and then with what a decision has lost."""
        seeks, self.timers.cut = self.timers.cut or [], None
        return [*seeks]

    def decided(self, checkpoint_id: int) -> list[do.Action]:
        """Send the outputs of rows that are processed, and whose decisions are known to be valid (C3)."""
        return self._outputs.send_batches(self._source.done(), checkpoint_id)

    def check_invariants(self, *, running: bool) -> None:
        """Raise AssertionError unless this holds between any two steps; ``running``: the task is."""
        time = self._time
        self.timers.check_invariants()
        left = self.timers.left
        assert running or not self.active or left, (running, left)
        assert self.active or not left, left
        assert time.lease <= time.lease_sent, (time.lease, time.lease_sent)
        self._outputs.check_invariants(max(time.floor, self.upto))


class Quiescence:
    """The waits of one running task."""

    def __init__(
        self, processing: Processing, source: Source, results: CallResults, closing: Closing, ahead: WriteAhead
    ) -> None:
        self._processing, self._source, self._results = processing, source, results
        self._closing, self._ahead = closing, ahead

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being processed: what is in the write batch was also sent."""
        return not self._processing.active and self._source.at_rest

    @property
    def may_close(self) -> bool:
        """Whether a checkpoint can be frozen now: all is at rest, or waits for timers that are due."""
        return self.at_rest or (self._processing.may_be_cut and not self._results.waits)

    def closes(self, frozen: int, mono_ms: int) -> bool:
        """Tell whether the checkpoint behind ``frozen`` is to be frozen as soon as it can be."""
        return not self._ahead.committing and self._closing.due(frozen, mono_ms)

    def fires(self, *, closes: bool) -> bool:
        """Tell whether the next of the timers that are left may fire; ``closes``: a checkpoint is to close before.

        None closes in a replay. A stop does not wait for timers, and ends a replay that has some.
        """
        if not self._processing.timers.may_fire or self._results.waits or self._ahead.has_no_room:
            return False
        stops = self._closing.stopping
        return not self.ends_replay if self._source.replay else not (stops or closes)

    @property
    def ends_replay(self) -> bool:
        """Whether a stop ends a replay in which timers are due: without a commit, so it begins again."""
        return self._closing.stopping and bool(self._source.replay) and self._processing.has_left
