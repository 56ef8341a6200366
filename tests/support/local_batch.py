"""A whole job over a recorded history in this process, all of it in memory: what Spark does is compared with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain

from grete.api.jobs.job import Job
from grete.batch.channels import channels_of, stages_in_order
from grete.batch.frames import Frame
from grete.batch.history_task import HistoryTask
from grete.batch.logical_order import LogicalOrder
from grete.batch.passes import LiveTime
from grete.batch.record_order import Piece, before_others, piece_of_message, pieces_of_rows
from grete.core.deterministic.logical_watermarks import NEVER
from grete.execution.job_task import JobTask
from grete.execution.task_code.record_times import order_of
from grete.execution.timing.event_time import OUTSIDE
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition, producer_id
from grete.settings import Settings
from grete.spark.backfill.run.batch_task import BatchTask, StateRow


@dataclass
class TaskResult:
    """The result of one task's history."""

    state: list[StateRow] = field(default_factory=list)
    external: list[ExternalRecord] = field(default_factory=list)
    records: int = 0


def run_job(
    job: Job,
    history: Callable[[TopicPartition], Iterable[LogRow]],
    settings: Settings | None = None,
    *,
    checkpoint_id: int = 1,
    outbox: bool = True,
    orders: Mapping[int, LogicalOrder] = {},
    reached_us: Mapping[int, int] = {},
) -> dict[tuple[int, int], TaskResult]:
    """Run every task of a job over its history; return (stage ordinal, partition) → its result. Raises TaskError.

    ``orders``: producer id → the logical order of its inputs; without it, all of them are history. ``reached_us``:
    producer id → the logical time of what its live task had processed last.
    """
    settings, topology = settings or Settings(), job.topology()
    outside = dict.fromkeys(job.external_sinks(), job.partitions)
    streams: dict[TopicPartition, list[Frame]] = {}
    results = {}
    for stage in stages_in_order(job):
        logical = stage.mode == "deterministic"
        for partition in range(stage.partitions):
            number = producer_id(stage.ordinal, partition)
            order, reached = (
                orders.get(number, LogicalOrder(checkpoint_id * 1_000)),
                LiveTime(None, reached_us.get(number)),
            )
            declared = HistoryTask(JobTask(stage, topology, partition), settings, outside, order=order)
            task, result = BatchTask(declared), TaskResult()
            times = {each.topic.name: order_of(each) for each in stage.inputs.values()}
            channels = channels_of(topology, stage.ordinal, partition)
            pieces: list[Iterable[Piece]] = []
            for (producer, source), channel in channels.items():
                if producer != OUTSIDE:
                    theirs = [f for f in streams.get(source, []) if f.producer == producer]
                    pieces.append(_frames(source, channel, sorted(theirs, key=_place), logical=logical))
                    continue
                found = pieces_of_rows(
                    source, channel, history(source), settings.batch_bytes_max, times.get(source.topic)
                )
                first = source.topic in stage.topics_read_first()
                if logical:
                    found = order.of(source, producer_id(stage.ordinal, partition), (), found, first=first)
                elif first:
                    found = before_others(found, NEVER)
                pieces.append(found)
            if logical:
                pieces.append(order.idle({source: channel for (_, source), channel in channels.items()}))
            for sent in chain(task.run(merge(*pieces, key=lambda piece: piece[:3])), task.finish(reached)):
                for each in sent:
                    if isinstance(each, Frame):
                        streams.setdefault(each.partition, []).append(each)
                    else:
                        result.external.append(each)
            result.records = task.records
            result.state = list(task.state(checkpoint_id, outbox=outbox))
            task.close()
            results[stage.ordinal, partition] = result
    return results


def _place(frame: Frame) -> tuple[int, int]:
    return frame.start, frame.first


def _frames(source: TopicPartition, channel: int, frames: Iterable[Frame], *, logical: bool) -> Iterator[Piece]:
    return (
        piece_of_message(source, frame.start, channel, frame.first, frame.message, logical=logical) for frame in frames
    )
