"""Timestamp extraction for external inputs (``time=``) that do not use the log's timestamp.

The loop of the input gives each record its time before user code sees it. The input reader asks as well, as it reads
external inputs in the order of time; there a record whose time cannot be told has the log's timestamp.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grete.api.jobs.graph import StageGraph
from grete.api.tasks.context import Context
from grete.api.topics.input_arguments import MS_MAX
from grete.api.topics.topic import Input
from grete.errors import TaskError
from grete.execution.records.decoding import decoders
from grete.execution.task_code.failures import is_ours, refuser
from grete.execution.task_code.process_loops import Loop
from grete.execution.task_code.site import Site
from grete.ports import LogRow
from grete.protocol.record_batch import RecordBatch

TimeOf = Callable[[bytes | None, int], int]  # of a value and the log's timestamp, in ms. Raises what user code raises

InPlace = Callable[[RecordBatch, int, Callable[[], None]], None]  # of a record, by its batch and index


@dataclass(frozen=True, slots=True)
class InputTimes:
    """Timestamp extractors of a task's inputs, by topic. A topic without one uses the log's timestamp."""

    times: Mapping[str, Callable[[LogRow], int]] = field(default_factory=dict)  # row → the time to order it by
    idle_ms: Mapping[str, int] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()  # event time does not go by these


def input_times(stage: StageGraph, wall_us: Callable[[], int]) -> InputTimes:
    """Return the timestamp extractors of a stage's inputs; ``wall_us``: the wall clock."""
    times: dict[str, Callable[[LogRow], int]] = {}
    for declared in stage.inputs.values():
        if declared.time == "intake":
            times[declared.topic.name] = lambda _row: wall_us() // 1_000
        elif (order := order_of(declared)) is not None:
            times[declared.topic.name] = partial(_of_row, order)
    idle = {each.topic.name: each.idle_ms for each in stage.inputs.values() if each.idle_ms is not None}
    return InputTimes(times, idle, silent_inputs(stage))


def silent_inputs(stage: StageGraph) -> frozenset[str]:
    """Return the topics by which event time does not go: they tell none (``time="none"``)."""
    return frozenset(name for name, time in stage.topics_timed().items() if time == "none")


def _of_row(order: TimeOf, row: LogRow) -> int:
    return order(row.value, row.timestamp_ms)


def time_of(declared: Input[Any, Any]) -> TimeOf | None:
    """Return the function that tells a record's time by its value; None: the value does not tell it."""
    if isinstance(declared.time, str):
        return None
    (_, decode), tell = decoders(declared.topic), declared.time

    def told(value: bytes | None, timestamp: int) -> int:
        if value is None:  # a tombstone has no field
            return timestamp
        time = tell(decode(value, None))
        if type(time) is not int or not 0 <= time < MS_MAX:
            raise TaskError(
                f"time= gave {time!r}: need an int, milliseconds since 1970, from 0 to {MS_MAX - 1}: for a record that "
                "tells an earlier time, or none, let time= return another one, or raise"
            )
        return time

    return told


def order_of(declared: Input[Any, Any]) -> TimeOf | None:
    """Return the time to order a record by, where the value tells it; one whose value does not has the log's."""
    told = time_of(declared)
    if told is None:
        return None

    def order(value: bytes | None, timestamp: int) -> int:
        try:
            return told(value, timestamp)
        except Exception as error:
            if is_ours(error):
                raise
            return timestamp  # the loop will meet it again, and has the input's error policy

    return order


def with_times(site: Site, declared: Input[Any, Any], context: Context, loop: Loop, in_place: InPlace) -> Loop:
    """Return ``loop`` for records that have the input's ``time=``; its error policy gets a record that has none.

    ``in_place`` does a step in place of a record.
    """
    if declared.time in ("record", "none"):
        return loop
    told = time_of(declared)
    if told is None:
        return lambda batch: loop(batch._replace(timestamps=_intake(batch, context)))
    refuse = refuser(site, declared)

    def without_time(batch: RecordBatch, index: int, error: Exception) -> None:
        if site.clock is not None:
            site.clock.whole(part_of(batch, index, index + 1))
        refuse(batch, index, error)

    def whole(batch: RecordBatch, begin: int, end: int, times: list[int]) -> bool:
        """Process a part; return whether that was all of it."""
        loop(part_of(batch, begin, end)._replace(timestamps=times))
        if site.reading.left:
            site.reading.left += len(batch.keys) - end
        return not site.reading.left

    def timed(batch: RecordBatch) -> None:
        begin, times = 0, list[int]()
        for index, (value, timestamp) in enumerate(zip(batch.values, batch.timestamps, strict=True)):
            try:
                times.append(told(value, timestamp))
            except Exception as error:  # noqa: BLE001  # ours are raised again by refuse
                if times and not whole(batch, begin, index, times):
                    return
                begin, times = index + 1, []
                in_place(batch, index, partial(without_time, batch, index, error))
        if times:
            whole(batch, begin, len(batch.keys), times)

    return timed


def _intake(batch: RecordBatch, context: Context) -> Sequence[int]:
    """Return the times at which the task took the records in: in deterministic mode, those that it has recorded."""
    if batch.logical is not None:
        return [t // 1_000 for t in batch.logical[0]]
    return [context.now()] * len(batch.keys)


def part_of(batch: RecordBatch, begin: int, end: int) -> RecordBatch:
    """Return the records of a batch from ``begin`` up to ``end``."""
    assert 0 <= begin <= end <= len(batch.keys), f"records {begin} to {end} of {len(batch.keys)}"
    cut = slice(begin, end)
    return batch._replace(
        keys=batch.keys[cut],
        values=batch.values[cut],
        timestamps=batch.timestamps[cut],
        headers=None if batch.headers is None else batch.headers[cut],
        logical=None if batch.logical is None else (batch.logical[0][cut], batch.logical[1][cut]),
        offset=batch.offset if isinstance(batch.offset, int) else batch.offset[cut],
        first=batch.first + begin,
    )
