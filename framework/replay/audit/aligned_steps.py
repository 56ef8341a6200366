"""A step of an aligned task, made again: its inputs in an order that its channels allow."""

from collections.abc import Iterable, Iterator, Sequence

from grete.batch.engine import frames_of, left, processed
from grete.batch.frames import Frame
from grete.batch.history_task import HistoryTask
from grete.batch.passes import HistoryPass, LiveTime
from grete.batch.record_order import Piece, merged, piece_of_message, pieces_of_rows
from grete.execution.task_code.record_times import order_of
from grete.execution.timing.event_time import OUTSIDE
from grete.execution.timing.reserved_stores import EVENT_TIME, META, OUTBOX, STREAM_TIME
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from grete.replay.audit.sample import Sample
from grete.replay.audit.steps import RemadeMessage, ValueOf, offsets
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.read.live_entries import event_time_of


class AlignedSteps:
    """A task in aligned mode. ``sample``: the records that are made again; None: all."""

    def __init__(self, task: HistoryTask, sample: Sample | None) -> None:
        self._task, self._wiring, self._sample = task, task.job_task.wiring, sample
        self._declared = task.job_task.stage.inputs_by_log_topic(task.job_task.topology)
        self._channels = task.channels

    def task(self, _log: LogReader, _begin: int, _before: Commit, _after: Snapshot) -> HistoryTask:
        """As of TaskSteps."""
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
        """As of TaskSteps; all that is ``taken`` belongs to the step."""
        stream_time = value_of(META, STREAM_TIME)
        sent: list[Frame] = []
        for piece in merged(self._pieces(log, before, after, taken), len(self._channels)):
            drawn = self._drawn(piece)
            if drawn is not None:
                sent += frames_of(processed(made, drawn))
        made.end(LiveTime(None if stream_time is None else event_time_of(stream_time)))
        return sent + frames_of(left(made))

    def is_compared(self, store: int, key: bytes) -> bool:
        """As of TaskSteps."""
        if store == OUTBOX:  # it is emptied when its sink takes it
            return False
        if store == META:  # which inputs were idle, a clock has decided; what came of it, event time, is compared
            return self._sample is None and not key.startswith(EVENT_TIME)
        return self._sample is None or self._sample.has_entry(store, key)

    def _pieces(self, log: LogReader, before: Commit, after: Commit, taken: Iterable[RemadeMessage]) -> Iterator[Piece]:
        """Yield the messages that came in between two commits, in an order that its channels allow."""
        found = [self._frame_piece(sent) for sent in taken]
        begins = offsets(before)
        for partition, end in offsets(after).items():
            begin = begins.get(partition, self._wiring.starts.get(partition, 0))
            if begin >= end:
                continue
            read = rows(log, partition, begin, end, acknowledged=end)
            number, time_of = self._channels[OUTSIDE, partition], order_of(self._declared[partition.topic])
            pieces = pieces_of_rows(partition, number, read, self._task.settings.batch_bytes_max, time_of)
            if len(self._channels) == 1:
                yield from pieces
            else:
                found += pieces
        yield from sorted(found, key=lambda piece: piece[:3])

    def _frame_piece(self, sent: RemadeMessage) -> Piece:
        place = TopicPartition(sent.topic, sent.partition)
        return piece_of_message(place, sent.start, self._channels[sent.producer, place], sent.seq, sent.message)

    def _drawn(self, piece: Piece) -> Piece | None:
        """Return the part of a piece that is of drawn keys; None: nothing."""
        if self._sample is None or not piece.batch.keys:
            return piece
        records = piece.batch
        drawn = [i for i, key in enumerate(records.keys) if self._sample.has(key)]
        return piece._replace(batch=_only(records, drawn)) if drawn else None


def _only(records: RecordBatch, places: Sequence[int]) -> RecordBatch:
    """Return some records of a batch."""
    return records._replace(
        keys=[records.keys[i] for i in places],
        values=[records.values[i] for i in places],
        timestamps=[records.timestamps[i] for i in places],
        headers=None if records.headers is None else [records.headers[i] for i in places],
        offset=[records.offset_at(i) for i in places],
    )
