"""Runs in Spark's executors: one task of the job over its history, and its results as Arrow batches.

Plain functions over iterators of batches, so that they can be tested without Spark.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import chain
from typing import Any

import msgspec

from framework.api.definition import decode_definition, take_over
from framework.api.job import Job
from framework.batch.channels import channels_of
from framework.batch.frames import Frame
from framework.batch.logical_order import LogicalOrder, recorded_order
from framework.batch.record_order import InputPieces, Piece, piece_of_message
from framework.batch.task import BatchTask
from framework.core.task_topology import wire
from framework.execution.event_time import OUTSIDE
from framework.execution.record_times import TimeOf, order_of
from framework.job.loader import load_job
from framework.logs.partition_reader import rows
from framework.ports import ExternalRecord
from framework.spark.backfill.blocks import rows_of
from framework.spark.backfill.plans import StagePlan, TaskReport
from framework.spark.backfill.results import Recorded, counted, handed_on, write
from framework.spark.backfill.schema import FRAME, OUTPUT, PIECE, REPORT, batch, cells
from framework.state.recorded_task import recorded_task
from protocol.envelope import Header, MessageType, encode_header
from protocol.frames import encode_columns, encode_headers
from protocol.ids import TopicPartition, producer_id

_FRAME_HEADER = encode_header(Header(MessageType.FRAME, 0, 0, 0, 0))


def run_stage(plan: StagePlan, partition: int, attempt: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Run one task; yield batches of SCHEMA: frames and outputs as they come, then a report.

    Its state goes to the changelog as ``attempt``, or is compared; else it is yielded, too.
    """
    job = _job(plan)
    stage, order = job.stages[plan.stage], _order_of(plan, job, partition)
    task = BatchTask(
        job,
        stage,
        partition,
        plan.settings,
        plan.outside,
        outputs=plan.outputs,
        order=order,
        is_recorded=plan.is_recorded,
        makes_calls=plan.makes_calls,
    )
    report = TaskReport(partition, 0, 0, 0, 0, 0)
    recorded: Recorded | None = None
    try:
        yield from _sent(plan, job, report, task.run(_pieces(plan, job, partition, order, batches, report)))
        if plan.snapshots is not None:
            recorded = Recorded(plan, plan.snapshots[partition], job)
        live_ms = recorded.event_time_ms if recorded and not order.is_live else None
        yield from _sent(plan, job, report, task.finish(live_ms))
        state = counted(report, task.state(plan.checkpoint_id, outbox=plan.outputs))
        if plan.bulk_write is not None:
            write(plan, plan.bulk_write, job, partition, attempt, state, report)
        elif recorded is not None:
            yield from recorded.differences(partition, state)
        else:
            yield from handed_on(partition, state)
        report.records, report.refused = task.records, task.refused
        report.failed = task.failed
        report.outputs += task.dropped
        yield batch(1, kind=REPORT, task=partition, value=[msgspec.json.encode(report)])
    finally:
        task.close()


def cut_pieces(plan: StagePlan, topic: str, partition: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield one external input of one task as pieces, its rows and its tail, for a stage with several channels."""
    report = TaskReport(partition, 0, 0, 0, 0, 0)
    job = _job(plan)
    for piece in _external(plan, job, topic, partition, _order_of(plan, job, partition), batches, report):
        records = piece.batch
        columns = records.keys, records.values, records.timestamps, records.headers
        body = encode_columns(*columns, logical=records.logical)
        offsets = b"".join(records.offset_at(i).to_bytes(8, "big", signed=True) for i in range(len(records.keys)))
        yield batch(
            1,
            kind=PIECE,
            topic=[records.source.topic],
            partition=partition,
            start=[piece.start],
            channel=[piece.channel],
            first=[piece.first],
            value=[_FRAME_HEADER + body],
            offsets=[offsets],
            refused=[piece.refused],
        )


# --- Input ---


def _job(plan: StagePlan) -> Job:
    return _job_of(plan.job, plan.definition)


@lru_cache(maxsize=4)
def _job_of(reference: str, definition: bytes) -> Job:
    job = load_job(reference)
    if definition:
        take_over(decode_definition(definition), job)
    return job


def _order_of(plan: StagePlan, job: Job, partition: int) -> LogicalOrder:
    """Return what a deterministic task knows of logical time: all its history is before the checkpoint of a backfill.

    An audit knows it from the changelog, and if that does not have it, from the records' times alone.
    """
    wiring = wire(job.topology(), plan.stage, partition)
    if plan.bulk_write is not None:
        return LogicalOrder(plan.checkpoint_id * 1_000)
    if not wiring.deterministic or plan.snapshots is None or not plan.is_recorded:
        return LogicalOrder()
    log = plan.where.open()
    try:
        return recorded_order(recorded_task(log, wiring.changelog), plan.snapshots[partition].commit)
    finally:
        log.close()


def _pieces(
    plan: StagePlan, job: Job, partition: int, order: LogicalOrder, batches: Iterable[Any], report: TaskReport
) -> Iterable[Piece]:
    """Return the pieces of all channels, in their order, with what a live task has noted of idle inputs."""
    channels = channels_of(job.topology(), plan.stage, partition)
    idle = order.idle({source: number for (_, source), number in channels.items()})
    if plan.from_rows:
        (topic,) = job.topology().externals_of(plan.stage)
        rows_ = _external(plan, job, topic, partition, order, batches, report)
        return merge(rows_, idle, key=_place) if order.decisions else rows_
    logs = [
        _external(plan, job, source.topic, partition, order, (), report)
        for (producer, source), number in channels.items()
        if producer == OUTSIDE and source in plan.tails and source.topic not in plan.files
    ]
    logical = job.stages[plan.stage].mode == "deterministic"
    return merge(_read_pieces(batches, logical=logical), *logs, idle, key=_place)


def _place(piece: Piece) -> tuple[int, int, int]:
    return piece[:3]


def _read_pieces(batches: Iterable[Any], *, logical: bool) -> Iterator[Piece]:
    """Yield the pieces of sorted batches of SCHEMA."""
    for found in batches:
        names = ("topic", "partition", "start", "channel", "first", "value", "offsets", "refused")
        for topic, number, start, channel, first, message, offsets, refused in zip(
            *(found.column(name).to_pylist() for name in names), strict=True
        ):
            source = TopicPartition(topic, number)
            piece = piece_of_message(source, start, channel, first, message, logical=logical)
            if offsets is None:
                yield piece
                continue
            places = [int.from_bytes(offsets[i : i + 8], "big", signed=True) for i in range(0, len(offsets), 8)]
            yield piece._replace(batch=piece.batch._replace(offset=places), refused=refused)


def _external(
    plan: StagePlan,
    job: Job,
    topic: str,
    partition: int,
    order: LogicalOrder,
    batches: Iterable[Any],
    report: TaskReport,
) -> Iterator[Piece]:
    """Yield the pieces of one of a task's external inputs: of its rows, then of its tail in the log."""
    source, number = TopicPartition(topic, partition), job.topology().externals_of(plan.stage).index(topic)
    channel = InputPieces(source, -1 - number, plan.settings.batch_bytes_max, _orders(plan, job).get(topic))
    found, tail = _row_pieces(channel, rows_of(batches), report), _tail_pieces(plan, source, channel)
    stage = job.stages[plan.stage]
    if stage.mode != "deterministic":
        return chain(found, tail)
    history, taken = ((), chain(found, tail)) if topic in plan.placed else (found, tail)
    return order.of(source, producer_id(plan.stage, partition), history, taken, first=False)


def _tail_pieces(plan: StagePlan, source: TopicPartition, channel: InputPieces) -> Iterator[Piece]:
    for offsets, _, timestamps, keys, values, headers in _log_batches(plan, source):
        yield from channel.pieces(offsets, timestamps, keys, values, headers if any(headers) else None)


def _orders(plan: StagePlan, job: Job) -> dict[str, TimeOf | None]:
    """Return topic → the time to order its records by, if it is not their timestamps (``time=``)."""
    return {declared.topic.name: order_of(declared) for declared in job.stages[plan.stage].inputs.values()}


def _row_pieces(channel: InputPieces, parts: Iterable[Any], report: TaskReport) -> Iterator[Piece]:
    """Yield the pieces of one input's rows: in order, each offset once."""
    last, place = -1, 0
    for part in parts:
        count = len(part)
        if "offset" in part.schema.names:
            offsets = part.column("offset").to_pylist()
        else:
            offsets = list(range(place, place + count))
            place += count
        columns = [
            offsets,
            part.column("timestamp").to_pylist(),
            cells(part.column("key")),
            cells(part.column("value")),
        ]
        headers = part.column("headers").to_pylist() if "headers" in part.schema.names else None
        columns.append(None if headers is None else [_header_cell(cell) for cell in headers])
        refused = part.column("refused")
        if refused.null_count == count and last < offsets[0] and _rises(part):
            last = offsets[-1]
            yield from channel.pieces(*columns)
            continue
        begin = 0
        for index, (offset, reason) in enumerate(zip(offsets, refused.to_pylist(), strict=True)):
            if reason is None and offset > last:
                last = offset
                continue
            yield from channel.pieces(*_span(columns, begin, index))
            begin = index + 1
            if reason is None:
                report.repeats += 1
            else:
                yield channel.refused(-1 if offset is None else offset, columns[3][index], reason)
        yield from channel.pieces(*_span(columns, begin, count))


def _span(columns: Sequence[Any], begin: int, end: int) -> tuple[Any, ...]:
    return tuple(None if column is None else column[begin:end] for column in columns)


def _rises(part: Any) -> bool:
    """Whether the offsets, none of them null, rise from row to row."""
    if "offset" not in part.schema.names:
        return True
    offsets = part.column("offset").to_numpy(zero_copy_only=False)
    return bool((offsets[1:] > offsets[:-1]).all())


def _header_cell(cell: Sequence[dict[str, Any]] | None) -> bytes | None:
    return encode_headers([(each["key"], each["value"] or b"") for each in cell]) if cell else None


def _log_rows(plan: StagePlan, source: TopicPartition) -> Iterator[Any]:
    tail = plan.tails.get(source)
    if tail is None or tail.begin >= tail.end:
        return
    log = plan.where.open()
    try:
        yield from rows(log, source, *tail)
    finally:
        log.close()


def _log_batches(plan: StagePlan, source: TopicPartition) -> Iterator[tuple[Any, ...]]:
    """Yield a log's rows in columns: offsets, append times, timestamps, keys, values, headers."""
    batch_: list[Any] = []
    for row in _log_rows(plan, source):
        batch_.append(row)
        if len(batch_) == 1_000:
            yield tuple(zip(*batch_, strict=True))
            batch_ = []
    if batch_:
        yield tuple(zip(*batch_, strict=True))


# --- Output ---


def _sent(
    plan: StagePlan, job: Job, report: TaskReport, parts: Iterable[list[Frame] | list[ExternalRecord]]
) -> Iterator[Any]:
    """Yield what a task sends as batches, and count it."""
    letters = {topic.name for topic in job.stages[plan.stage].dead_letters()}
    for sent in parts:
        if isinstance(sent[0], Frame):
            yield _frames(job, report.task, sent)
            continue
        if plan.outputs:
            yield _outputs(report.task, report.outputs, sent)
        report.outputs += len(sent)
        report.letters += sum(record.partition.topic in letters for record in sent) if letters else 0


def _frames(job: Job, task: int, frames: Sequence[Frame]) -> Any:
    topology = job.topology()
    consumers = {stream.topic: stream.consumer for stream in topology.streams}
    channels = [
        channels_of(topology, consumers[frame.partition.topic], frame.partition.partition)[
            frame.producer, frame.partition
        ]
        for frame in frames
    ]
    return batch(
        len(frames),
        kind=FRAME,
        task=task,
        topic=[frame.partition.topic for frame in frames],
        partition=[frame.partition.partition for frame in frames],
        start=[frame.start for frame in frames],
        channel=channels,
        first=[frame.first for frame in frames],
        value=[frame.message for frame in frames],
    )


def _outputs(task: int, first: int, records: Sequence[Any]) -> Any:
    places, keys, values, timestamps, headers = (list(column) for column in zip(*records, strict=True))
    return batch(
        len(records),
        kind=OUTPUT,
        task=task,
        topic=[place.topic for place in places],
        partition=[place.partition for place in places],
        first=list(range(first, first + len(records))),
        timestamp=timestamps,
        key=keys,
        value=values,
        headers=headers,
    )
