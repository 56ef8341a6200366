"""A step of an aligned task, made again: its inputs in an order that its channels allow."""

from collections.abc import Iterable, Iterator, Sequence

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.batch.channels import channels_of
from grete.batch.frames import Frame
from grete.batch.passes import AlignedPass, LiveTime
from grete.batch.record_order import Piece, merged, piece_of_message, pieces_of_rows
from grete.core.deterministic.logical_watermarks import NEVER
from grete.core.graph.task_topology import TaskWiring
from grete.execution.task_code.processor import Processor
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
from grete.settings import Settings
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.read.live_entries import event_time_of


class AlignedSteps:
    """Task (stage, partition), in aligned mode. ``sample``: the records that are made again; None: all."""

    def __init__(  # as they come in
        self,
        job: Job,
        stage: StageGraph,
        wiring: TaskWiring,
        partition: int,
        processor: Processor,
        settings: Settings,
        sample: Sample | None,
    ) -> None:
        self.processor, self._wiring, self._settings, self._sample = processor, wiring, settings, sample
        self._own = job, stage, partition
        self._declared = stage.inputs_by_log_topic(job.topology())
        self._channels = channels_of(job.topology(), stage.ordinal, partition)

    def reset(self, _log: LogReader, _begin: int, _before: Commit, _after: Snapshot) -> None:
        """As of TaskSteps."""
        self.processor.reset()

    def run(
        self, log: LogReader, before: Commit, after: Commit, taken: Sequence[RemadeMessage], value_of: ValueOf
    ) -> tuple[int, list[Frame]]:
        """As of TaskSteps; all that is ``taken`` belongs to the step."""
        stream_time = value_of(META, STREAM_TIME)
        made = AlignedPass(*self._own, self.processor, self._settings.batch_bytes_max, NEVER)
        sent: list[Frame] = []
        for piece in merged(self._pieces(log, before, after, taken), len(self._channels)):
            drawn = self._drawn(piece)
            if drawn is None:
                continue
            made.take(drawn)
            sent += made.frames(tell=False)
            made.external()
            self.processor.requests.forget()
        made.end(LiveTime(None if stream_time is None else event_time_of(stream_time)))
        sent += made.frames(tell=True)
        made.external()
        return made.records.total(), sent

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
            pieces = pieces_of_rows(partition, number, read, self._settings.batch_bytes_max, time_of)
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
