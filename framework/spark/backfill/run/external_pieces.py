"""Reads one external input of one task in an executor: rows of files, then what follows in the log, as pieces."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow.compute as pc

from grete.api.jobs.job import Job
from grete.batch.channels import channels_of
from grete.batch.logical_order import LogicalOrder
from grete.batch.record_order import InputPieces, Piece, before_others
from grete.core.deterministic.logical_watermarks import NEVER
from grete.execution.task_code.record_times import order_of
from grete.execution.timing.event_time import OUTSIDE
from grete.logs.partition_reader import rows
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition, producer_id
from grete.spark.backfill.account.file_rows import FileRows
from grete.spark.backfill.blocks import rows_of
from grete.spark.backfill.plans import BackfilledTask, StagePlan, TaskInput
from grete.spark.backfill.schema import cells


def external_pieces(
    plan: StagePlan,
    job: Job,
    source: TopicPartition,
    partition: int,
    order: LogicalOrder,
    batches: Iterable[Any],
    report: BackfilledTask,
) -> Iterator[Piece]:
    """Yield the pieces of one external input of a task: of its rows, then of its tail in the log.

    One that is read first (A2c) comes before all others, as far as it went when the job began.
    """
    stage, topic = job.stages[plan.stage], source.topic
    reader: TaskInput = producer_id(plan.stage, partition), source
    number = channels_of(job.topology(), plan.stage, partition)[OUTSIDE, source]
    declared = {each.topic.name: each for each in stage.inputs.values()}[topic]
    channel = InputPieces(source, number, plan.settings.batch_bytes_max, order_of(declared))
    placed, first = topic in plan.placed, topic in stage.topics_read_first()
    account = FileRows(topic, source.partition, next_offset=plan.begins.get(reader, 0) if placed else None)
    parts = _of_the_job(plan, reader, rows_of(batches, account.block), placed=placed)
    found = account.watch(_row_pieces(channel, parts, account), plan.sought.get(topic, frozenset()))
    if plan.snapshots is not None:
        found = account.sums.watch(found, timed=order_of(declared) is None)
    if topic in plan.files:
        report.taken.append(account)
    tail = _tail_pieces(plan, reader, channel)
    if stage.mode == "deterministic":
        history, taken = ((), chain(found, tail)) if placed else (found, tail)
        return order.of(source, reader[0], history, taken, first=first)
    if not first:
        return chain(found, tail)
    table = plan.tables.get(source, NEVER)
    return chain(before_others(found, table if placed else NEVER), before_others(tail, table))


def _of_the_job(plan: StagePlan, reader: TaskInput, parts: Iterable[Any], *, placed: bool) -> Iterator[Any]:
    """Yield the rows from where the job begins to where it goes on, or by time where they have no offsets."""
    begin_ms = plan.begins_ms.get(reader[1].topic)
    begin, end = plan.begins.get(reader, 0), plan.ends.get(reader, NEVER)
    for part in parts:
        found = part
        if placed:
            offsets = part.column("offset")
            inside = pc.and_(pc.greater_equal(offsets, begin), pc.less(offsets, end))
            found = part.filter(pc.or_(inside.fill_null(True), part.column("refused").is_valid()))
        elif begin_ms is not None:
            found = part.filter(pc.greater_equal(part.column("timestamp"), begin_ms).fill_null(True))
        if len(found):
            yield found


def _tail_pieces(plan: StagePlan, reader: TaskInput, channel: InputPieces) -> Iterator[Piece]:
    for offsets, _, timestamps, keys, values, headers in _log_batches(plan, reader):
        yield from channel.pieces(offsets, timestamps, keys, values, headers if any(headers) else None)


def _row_pieces(channel: InputPieces, parts: Iterable[Any], account: FileRows) -> Iterator[Piece]:
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
                account.twice += 1
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
    return encode_headers([(each["key"], each["value"]) for each in cell]) if cell else None


def _log_rows(plan: StagePlan, reader: TaskInput) -> Iterator[Any]:
    tail = plan.tails.get(reader)
    if tail is None or tail.begin >= tail.end:
        return
    log = plan.where.open()
    try:
        yield from rows(log, reader[1], *tail)
    finally:
        log.close()


def _log_batches(plan: StagePlan, reader: TaskInput) -> Iterator[tuple[Any, ...]]:
    """Yield a log's rows in columns: offsets, append times, timestamps, keys, values, headers."""
    batch_: list[Any] = []
    for row in _log_rows(plan, reader):
        batch_.append(row)
        if len(batch_) == 1_000:
            yield tuple(zip(*batch_, strict=True))
            batch_ = []
    if batch_:
        yield tuple(zip(*batch_, strict=True))
