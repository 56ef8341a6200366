"""A step of a deterministic task, made again: its inputs in the order that its changelog has recorded."""

from collections.abc import Iterator, Sequence

from grete.batch.engine import frames_of, left, processed
from grete.batch.frames import Frame
from grete.batch.history_task import HistoryTask
from grete.batch.logical_order import LogicalOrder
from grete.batch.passes import HistoryPass, LiveTime
from grete.batch.record_order import Piece, merged, piece_of_message, pieces_of_rows
from grete.execution.calls.kept_results import KeptResults, is_kept
from grete.execution.deterministic.outputs import AT, digest_key, is_of_outputs, logical_time_of
from grete.execution.task_code.record_times import part_of
from grete.execution.timing.event_time import OUTSIDE
from grete.execution.timing.reserved_stores import META, OUTBOX
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.commit import Commit
from grete.protocol.frames import decode_columns
from grete.protocol.ids import TopicPartition
from grete.replay.audit.sent import SentUpTo, is_watermark, number_of
from grete.replay.audit.steps import PlaceLost, RemadeMessage, ValueOf, offsets
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.read.recorded_task import recorded_between
from grete.stores.overlay.overlay import Overlay


class LogicalSteps:
    """A task in deterministic mode."""

    def __init__(self, task: HistoryTask, overlay: Overlay) -> None:
        self._task, self._overlay, self._wiring = task, overlay, task.job_task.wiring
        self._channels = task.channels
        self._digests = {digest_key(place) for place in self._wiring.outputs}

    def task(self, log: LogReader, begin: int, before: Commit, after: Snapshot) -> HistoryTask:
        """As of TaskSteps."""
        assert before.deterministic is not None
        assert after.commit.deterministic is not None
        first_t, last_t = before.deterministic.last_t, after.commit.deterministic.last_t
        recorded = recorded_between(log, after.changelog, begin, after.offset + 1)
        kept = KeptResults(self._overlay.store(META)).load()
        order = LogicalOrder(
            -1,
            dict.fromkeys(self._wiring.external, 0),
            [each for each in recorded.decisions if first_t < each.first_t and each.last_t <= last_t],
            is_live=True,
            calls={**kept, **{number: results for note in recorded.calls for number, results in note.records}},
        )
        self._task = self._task._replace(order=order)
        return self._task

    def run(
        self,
        made: HistoryPass,
        log: LogReader,
        before: Commit,
        after: Commit,
        taken: Sequence[RemadeMessage],
        value_of: ValueOf,
    ) -> list[Frame]:
        """As of TaskSteps. Raises PlaceLost: of what was ``taken``, records are missing."""
        pieces = [*self._external(log, before, after), *self._streams(before, after, taken)]
        pieces += self._task.order.idle({source: number for (_, source), number in self._channels.items()})
        pieces.sort(key=lambda piece: piece[:3])
        sent: list[Frame] = []
        for piece in merged(pieces, max(2, len(self._channels))):  # watermarks have places within frames
            sent += frames_of(processed(made, piece))
        at = value_of(META, AT)
        reached = SentUpTo.of(self._wiring, after, value_of)
        made.end(LiveTime(commit=(-1 if at is None else logical_time_of(at), reached.has_told)))
        return sent + frames_of(left(made))

    def is_compared(self, store: int, key: bytes) -> bool:
        """As of TaskSteps: what it has sent into streams by its digests; what is outside is not made again."""
        if store != META:
            return store != OUTBOX
        return key in self._digests or not (is_kept(key) or is_of_outputs(key))

    def _external(self, log: LogReader, before: Commit, after: Commit) -> Iterator[Piece]:
        """Yield the records from outside between two commits, with the times that they were given."""
        begins = offsets(before)
        for partition, end in offsets(after).items():
            begin = begins.get(partition, self._wiring.starts.get(partition, 0))
            read = rows(log, partition, begin, end, acknowledged=end)
            number = self._channels[OUTSIDE, partition]
            pieces = pieces_of_rows(partition, number, read, self._task.settings.batch_bytes_max)
            yield from self._task.order.of(partition, self._wiring.producer, (), pieces, first=False)

    def _streams(self, before: Commit, after: Commit, taken: Sequence[RemadeMessage]) -> Iterator[Piece]:
        """Yield the part of what was sent that was processed between two commits."""
        begins, ends = seqs(before), seqs(after)
        from_t, to_t = frontiers(before), frontiers(after)
        found = dict.fromkeys(ends, 0)
        for sent in taken:
            place = TopicPartition(sent.topic, sent.partition)
            channel = sent.producer, place
            number = self._channels[channel]
            if is_watermark(sent):
                if from_t.get(channel, -1) < sent.start <= to_t[channel]:
                    yield piece_of_message(place, sent.start, number, sent.seq, sent.message, logical=True)
                continue
            first = max(sent.seq, begins.get(channel, 0) + 1)
            last = min(sent.seq + number_of(sent) - 1, ends[channel])
            if first <= last:
                batch = part_of(decode_columns(sent.message, place, sent.seq), first - sent.seq, last + 1 - sent.seq)
                assert batch.logical is not None
                found[channel] += last + 1 - first
                yield Piece(batch.logical[0][0], number, first, batch)
        for channel, end in ends.items():
            if found[channel] != end - begins.get(channel, 0):
                raise PlaceLost(
                    f"{self._wiring.name}: {end - begins.get(channel, 0)} records of {channel[1]} came in from "
                    f"producer {channel[0]}, and {found[channel]} were made again"
                )


def seqs(commit: Commit) -> dict[tuple[int, TopicPartition], int]:
    """Return the last seq included, by producer and partition."""
    return {
        (channel.producer, TopicPartition(entry.topic, entry.partition)): channel.seq
        for entry in commit.inputs
        for channel in entry.channels
    }


def frontiers(commit: Commit) -> dict[tuple[int, TopicPartition], int]:
    """Return the logical time up to which all is included, by producer and partition."""
    assert commit.deterministic is not None
    return {(f.producer, TopicPartition(f.topic, f.partition)): f.t for f in commit.deterministic.frontiers}
