"""Runs in Spark's executors: one task of the job over its history, and its results as Arrow batches.

Plain functions over iterators of batches, so that they can be tested without Spark.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from typing import Any

import msgspec

from grete.api.jobs.definition import decode_definition, take_over
from grete.api.jobs.job import Job
from grete.api.topics.topic import Input
from grete.batch.channels import channels_of
from grete.batch.engine import Sent
from grete.batch.frames import Frame
from grete.batch.history_task import HistoryTask
from grete.batch.logical_order import LogicalOrder, recorded_order
from grete.batch.passes import HISTORY_ALONE
from grete.batch.record_order import Piece, piece_of_message
from grete.core.deterministic.logical_watermarks import NEVER
from grete.core.graph.task_topology import wire
from grete.execution.job_task import JobTask
from grete.execution.task_code.record_times import order_of
from grete.execution.timing.event_time import OUTSIDE
from grete.job.loader import load_job
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import encode_columns
from grete.protocol.ids import TopicPartition
from grete.quoting import set_shown
from grete.spark.backfill.account.file_rows import FileRows
from grete.spark.backfill.blocks import TimesOf
from grete.spark.backfill.plans import BackfilledTask, StagePlan
from grete.spark.backfill.results import Recorded, counted, handed_on, write
from grete.spark.backfill.run.batch_task import BatchTask
from grete.spark.backfill.run.carried_errors import carried
from grete.spark.backfill.run.external_pieces import external_pieces
from grete.spark.backfill.schema import FRAME, OUTPUT, PIECE, REPORT, batch
from grete.state.read.recorded_task import recorded_task

_FRAME_HEADER = encode_header(Header(MessageType.FRAME, 0, 0, 0, 0))


def run_stage(plan: StagePlan, partition: int, attempt: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Run one task; yield batches of SCHEMA: frames and outputs as they come, then a report.

    Its state goes to the changelog as ``attempt``, or is compared; else it is yielded, too.
    """
    set_shown(plan.settings.show_records)  # in a process of Spark
    job = _job(plan)
    stage, order = job.stages[plan.stage], _order_of(plan, job, partition)
    task = BatchTask(
        HistoryTask(
            JobTask(stage, job.topology(), partition),
            plan.settings,
            plan.outside,
            outputs=plan.outputs,
            order=order,
            is_recorded=plan.is_recorded,
            makes_calls=plan.makes_calls,
        )
    )
    report = BackfilledTask(partition, 0, 0, 0, 0, stage=plan.stage)
    recorded: Recorded | None = None
    try:
        yield from _sent(plan, job, report, task.run(_pieces(plan, job, partition, order, batches, report)))
        if plan.snapshots is not None:
            recorded = Recorded(plan, plan.snapshots[partition], job)
        live = recorded.reached(is_live=order.is_live) if recorded else HISTORY_ALONE
        yield from _sent(plan, job, report, task.finish(live))
        state = counted(report, task.state(plan.checkpoint_id, outbox=plan.outputs))
        if plan.bulk_write is not None:
            write(plan, plan.bulk_write, job, partition, attempt, state, report)
        elif recorded is not None:
            yield from recorded.differences(partition, state)
        elif plan.counts_alone:
            deque(state, maxlen=0)
        else:
            yield from handed_on(partition, state)
        report.records, report.refused = task.records, task.refused
        report.failed = task.failed
        report.outputs += task.dropped
        yield batch(1, kind=REPORT, task=partition, value=[msgspec.json.encode(report)])
    finally:
        task.close()


def cut_pieces(plan: StagePlan, source: TopicPartition, partition: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield one external input of one task as pieces, its rows and its tail, for a stage with several channels."""
    report = BackfilledTask(partition, 0, 0, 0, 0)
    job = _job(plan)
    for piece in external_pieces(plan, job, source, partition, _order_of(plan, job, partition), batches, report):
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
    for account in report.taken:  # behind all pieces, since a task adds up what was counted here
        yield batch(1, kind=PIECE, partition=partition, start=[NEVER], offsets=[msgspec.json.encode(account)])


def record_times(plan: StagePlan, job: Job, topic: str) -> TimesOf | None:
    """Return the function that tells executors the times of an input's rows; None: it has no ``time=`` of its own."""
    if order_of(_declared(job, plan.stage, topic)) is None:
        return None

    def times_of(values: Sequence[bytes | None], timestamps: Sequence[int]) -> list[int]:
        order = order_of(_declared(_job(plan), plan.stage, topic))
        assert order is not None
        with carried():
            return list(map(order, values, timestamps))

    return times_of


# --- Input ---


def _declared(job: Job, stage: int, topic: str) -> Input[Any, Any]:
    return next(each for each in job.stages[stage].inputs.values() if each.topic.name == topic)


def _job(plan: StagePlan) -> Job:
    return _job_of(plan.job, plan.definition, tuple(plan.broadcast.items()))


@lru_cache(maxsize=4)
def _job_of(reference: str, definition: bytes, broadcast: tuple[tuple[str, int], ...]) -> Job:
    job = load_job(reference)
    job.count_broadcast(dict(broadcast).get)
    if definition:
        take_over(decode_definition(definition), job)
    return job


def _order_of(plan: StagePlan, job: Job, partition: int) -> LogicalOrder:
    """Return a deterministic task's logical times: all its history is before the checkpoint of a backfill.

    An audit knows it from the changelog, and if that does not have it, from the records' times alone.
    """
    wiring = wire(job.topology(), plan.stage, partition)
    if plan.snapshots is None:
        return LogicalOrder(plan.checkpoint_id * 1_000)
    if not wiring.deterministic or not plan.is_recorded:
        return LogicalOrder()
    log = plan.where.open()
    try:
        return recorded_order(recorded_task(log, wiring.changelog), plan.snapshots[partition].commit)
    finally:
        log.close()


def _pieces(
    plan: StagePlan, job: Job, partition: int, order: LogicalOrder, batches: Iterable[Any], report: BackfilledTask
) -> Iterable[Piece]:
    """Return the pieces of all channels, in their order, with what a live task has noted of idle inputs."""
    channels = channels_of(job.topology(), plan.stage, partition)
    idle = order.idle({source: number for (_, source), number in channels.items()})
    if plan.from_rows:
        ((_, source),) = channels
        rows_ = external_pieces(plan, job, source, partition, order, batches, report)
        return merge(rows_, idle, key=_place) if order.decisions else rows_
    logs = [
        external_pieces(plan, job, source, partition, order, (), report)
        for producer, source in channels
        if producer == OUTSIDE and source.topic not in plan.files
    ]
    sources = {number: source for (_, source), number in channels.items()}
    logical = job.stages[plan.stage].mode == "deterministic"
    return merge(_read_pieces(batches, sources, report, logical=logical), *logs, idle, key=_place)


def _place(piece: Piece) -> tuple[int, int, int]:
    return piece[:3]


def _read_pieces(
    batches: Iterable[Any], sources: Mapping[int, TopicPartition], report: BackfilledTask, *, logical: bool
) -> Iterator[Piece]:
    """Yield the pieces of sorted batches of SCHEMA; ``sources``: by channel."""
    for found in batches:
        names = ("start", "channel", "first", "value", "offsets", "refused")
        for start, channel, first, message, offsets, refused in zip(
            *(found.column(name).to_pylist() for name in names), strict=True
        ):
            if message is None:
                report.taken.append(msgspec.json.decode(offsets, type=FileRows))
                continue
            piece = piece_of_message(sources[channel], start, channel, first, message, logical=logical)
            if offsets is None:
                yield piece
                continue
            places = [int.from_bytes(offsets[i : i + 8], "big", signed=True) for i in range(0, len(offsets), 8)]
            yield piece._replace(batch=piece.batch._replace(offset=places), refused=refused)


# --- Output ---


def _sent(plan: StagePlan, job: Job, report: BackfilledTask, parts: Iterable[Sent]) -> Iterator[Any]:
    """Yield the records that a task sends as batches, and count them."""
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
