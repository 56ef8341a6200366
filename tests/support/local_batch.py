"""A whole job over a recorded history in this process, all of it in memory: what Spark does is compared with it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain

from framework.api.job import Job
from framework.batch.record_order import Piece, piece_of_message, pieces_of_rows
from framework.batch.task import BatchTask, Frame, StateRow, channels_of, stages_in_order
from framework.execution.event_time import OUTSIDE
from framework.execution.record_times import order_of
from framework.ports import ExternalRecord, LogRow
from framework.settings import Settings
from protocol.ids import TopicPartition


@dataclass
class TaskResult:
    """What became of one task's history."""

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
) -> dict[tuple[int, int], TaskResult]:
    """Run every task of a job over its history; return (stage ordinal, partition) → its result. Raises TaskError."""
    settings, topology = settings or Settings(), job.topology()
    outside = dict.fromkeys(job.external_sinks(), job.partitions)
    streams: dict[TopicPartition, list[Frame]] = {}
    results = {}
    for stage in stages_in_order(job):
        for partition in range(job.partitions):
            task, result = BatchTask(job, stage, partition, settings, outside), TaskResult()
            orders = {declared.topic.name: order_of(declared) for declared in stage.inputs.values()}
            pieces = [
                _frames(source, channel, [f for f in streams.get(source, []) if f.producer == producer])
                if producer != OUTSIDE
                else pieces_of_rows(
                    source, channel, history(source), settings.batch_bytes_max, orders.get(source.topic)
                )
                for (producer, source), channel in channels_of(topology, stage.ordinal, partition).items()
            ]
            for sent in chain(task.run(merge(*pieces, key=lambda piece: piece[:3])), task.finish()):
                for each in sent:
                    if isinstance(each, Frame):
                        streams.setdefault(each.partition, []).append(each)
                    else:
                        result.external.append(each)
            result.records = sum(task.records.values())
            result.state = list(task.state(checkpoint_id, outbox=outbox))
            task.close()
            results[stage.ordinal, partition] = result
    return results


def _frames(source: TopicPartition, channel: int, frames: Iterable[Frame]) -> Iterator[Piece]:
    return (piece_of_message(source, frame.start, channel, frame.first, frame.message) for frame in frames)
