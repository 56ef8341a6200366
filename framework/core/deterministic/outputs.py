"""The sender of a deterministic task: frames, watermarks and progress downstream, records outside (D1, D5)."""

from collections.abc import Iterable, Sequence

from grete.core.actions import Action, Announce, ReleaseToSinks
from grete.core.changelog.ownership import Ownership
from grete.core.deterministic.logical_watermarks import messages
from grete.core.deterministic.merge_channel import ALL
from grete.core.deterministic.source import Decision
from grete.core.events import Ran
from grete.core.graph.task_topology import TaskWiring
from grete.core.sender import Sender
from grete.protocol.changelog import OutputRelease
from grete.protocol.control import encode_progress
from grete.protocol.frames import last_logical
from grete.protocol.ids import TopicPartition


class LogicalSender:
    """All that leaves the task. ``releases``: records for external topics are held until an output release (D5).

    ``pace_us``: progress is announced together with what other tasks of the process announce, and a batch announces its
    end only if that long has passed; 0: each message goes alone, at once.
    """

    def __init__(
        self, task: TaskWiring, sender: Sender, ownership: Ownership, *, releases: bool, pace_us: int = 0
    ) -> None:
        self.advanced = 0  # the time of the last progress message
        self.held = 0  # records that the driver holds back, made since the last release or freeze
        self._last: dict[TopicPartition, tuple[int, int]] = {}  # of each partition among them last seq and digest
        self._sink_t = -1  # of the last output that waits for a ReleaseToSinks
        self._let_out = -1  # the time up to which these may leave
        self._producer = task.producer
        timed, merged = task.timed_outputs, task.merged_outputs
        self._merged = [partition for partition in timed if partition in merged]
        self._others = [partition for partition in timed if partition not in merged]
        self._sender = sender
        self._ownership = ownership
        self._releases, self._pace_us = releases, pace_us

    def hold(self, event: Ran) -> None:
        """Count what the code has made for topics outside, if it waits for an output release; and note what waits."""
        self._sink_t = event.sink_t
        if self._releases:
            self.held += event.outputs
            self._last |= dict(event.released)

    def release(self) -> tuple[int, OutputRelease]:
        """Return the number of held records and their release; none is held any more."""
        count, last = self.held, sorted(self._last.items())
        self.held, self._last = 0, {}
        seqs = tuple((partition, seq) for partition, (seq, _) in last)
        return count, OutputRelease(seqs, tuple(digest for _, (_, digest) in last))

    def send(self, event: Ran, checkpoint_id: int) -> list[Action]:
        """Send what the code has made: for topics outside only what is not held.

        Watermarks go before the frames that pass their times, to consumers that merge; else behind those that led to
        them (E2).
        """
        actions = self._watermarks(event, checkpoint_id, self._merged)
        actions += self._sender.frames(event.frames, self._ownership.generation, checkpoint_id)
        actions += self._watermarks(event, checkpoint_id, self._others)
        if event.outputs and not self._releases:
            actions.append(self._sender.produce(event.outputs))
        return actions

    def to_sinks(self, t: int) -> list[Action]:
        """Let out what waits for files and tables up to ``t``: nothing up to it is still to be made or in doubt."""
        if t <= self._let_out or self._sink_t <= self._let_out:
            return []
        self._let_out = t
        return [ReleaseToSinks(t)]

    def send_batches(self, batches: Iterable[tuple[Decision | None, Ran]], checkpoint_id: int) -> list[Action]:
        """Send outputs, in order: of batches whose input decisions are valid; with the last ones of a batch its end."""
        actions: list[Action] = []
        for decision, outputs in batches:
            if decision is None:
                actions += self.send(outputs, checkpoint_id)
                continue
            ends = {partition: last_logical(body)[0] for partition, _, body in outputs.frames}
            besides = frozenset(partition for partition, t in ends.items() if t == decision.last_t)
            actions += [*self.send(outputs, checkpoint_id), *self.to_sinks(decision.last_t)]
            if decision.last_t >= self.advanced + self._pace_us:
                actions += self.progress(decision.last_t, checkpoint_id, besides=besides)
        return actions

    def _watermarks(self, event: Ran, checkpoint_id: int, partitions: Sequence[TopicPartition]) -> list[Action]:
        ours, next_seq = (self._producer, self._ownership.generation, checkpoint_id), self._sender.next_seq
        return [
            self._sender.send(partition, message)
            for partition in (partitions if event.advances else ())
            for message in messages(event.advances, *ours, next_seq[partition])
        ]

    def progress(self, t: int, checkpoint_id: int, *, besides: frozenset[TopicPartition] = frozenset()) -> list[Action]:
        """Announce that nothing up to ``t`` is still to come; channels whose last record says so get no message."""
        if t <= self.advanced:
            return []
        self.advanced = t
        ours = self._producer, self._ownership.generation, checkpoint_id
        if self._pace_us:
            return [Announce(*ours, t, dict(self._sender.next_seq))]
        return [
            self._sender.send(partition, encode_progress(*ours, seq, t, ALL))
            for partition, seq in self._sender.next_seq.items()
            if partition not in besides
        ]

    def check_invariants(self, upto: int) -> None:
        """Raise AssertionError unless this holds between any two steps; ``upto``: the time that the task has passed."""
        assert self.advanced <= upto, (self.advanced, upto)
        assert self._releases or not self.held, self.held
