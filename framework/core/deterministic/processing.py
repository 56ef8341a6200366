"""The input of a deterministic task's code, one action at a time, and the outputs that leave behind it (D1, D2)."""

from grete.core import actions as do
from grete.core.deterministic.logical_clock import LogicalClock
from grete.core.deterministic.merge import Merge
from grete.core.deterministic.outputs import LogicalSender
from grete.core.deterministic.source import Source
from grete.core.events import ExternalBatch, InputIdle, Ran
from grete.core.external_inputs import ExternalInputs
from grete.core.task_topology import TaskWiring


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
        self.upto = -1  # the time up to which all records of channels are processed
        self._timer = 0  # when the code has something to tell though nothing comes, as far as is known
        self._task, self._external = task, external
        self._source, self._merge, self._time, self._outputs = source, merge, time, outputs

    def take(self, checkpoint_id: int) -> list[do.Action]:
        """Process what may go (D1); once nothing may, tell downstream up to when nothing will come."""
        batches, upto = self._merge.take()
        if batches or self._timer <= upto > self.upto:
            self.active, self.upto = True, max(self.upto, upto)
            return [do.ProcessRecords(batches, upto)]
        self.upto = max(self.upto, upto)
        progress = self._outputs.progress(self.upto, checkpoint_id)
        return [*progress, *self._outputs.to_sinks(self.upto), *self._merge.seeks()]

    def decide(self, event: ExternalBatch | InputIdle) -> do.Action:
        """Take rows, or that an input is idle: the decision goes to the log while it is processed (D2)."""
        self.active = True
        self._merge.seen["inputs idle"] += isinstance(event, InputIdle)
        return self._source.decide_idle(event) if isinstance(event, InputIdle) else self._source.decide(event)

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
        self.active, self._timer, self._time.timer = False, min(event.timer, event.wall), event.wall
        self._outputs.hold(event)
        if self._source.batches:
            self._source.batches[-1].outputs = event
            return self.decided(checkpoint_id)
        actions = self._outputs.send(event, checkpoint_id)
        if self._source.replay:
            self._source.replayed(event.next_offset)
            return [*actions, *self._outputs.to_sinks(self._source.last_t), *self.go_on(checkpoint_id)]
        if self._task.channels:
            return actions + self._outputs.to_sinks(self.upto)
        return actions + self._outputs.progress(self._time.floor, checkpoint_id)

    def decided(self, checkpoint_id: int) -> list[do.Action]:
        """Send the outputs of rows that are processed, and whose decisions are known to be valid (C3)."""
        return self._outputs.send_batches(self._source.done(), checkpoint_id)
