"""The engine of a task's code over recorded input, without core and log: a backfill and both audits run on it.

They give it the pieces of a history in their order, and take what it sends.
"""

import time
from collections.abc import Iterable, Iterator

from grete.batch.frames import Frame
from grete.batch.history_task import HistoryTask
from grete.batch.passes import AlignedPass, HistoryPass, LogicalPass
from grete.batch.record_order import Piece
from grete.execution.limits import CALLS_LOOK_MS
from grete.execution.task_code.processor import Processor
from grete.ports import ExternalRecord
from grete.stores.overlay.overlay import Overlay

Sent = list[Frame] | list[ExternalRecord]


def begun(task: HistoryTask, overlay: Overlay) -> HistoryPass:
    """Return the pass of a task over the state that it begins with. Raises TaskError if its ``init`` fails."""
    made: HistoryPass = LogicalPass(task, overlay) if task.job_task.wiring.deterministic else AlignedPass(task, overlay)
    made.processor.reset()
    return made


def processed(made: HistoryPass, piece: Piece) -> Iterator[Sent]:
    """Process a piece; yield the frames and records sent. Raises TaskError."""
    made.take(piece)
    _wait_for_calls(made.processor, until_none=False)
    made.processor.requests.forget()  # it commits where its history says
    yield from _sent(made, tell=False)


def left(made: HistoryPass) -> Iterator[Sent]:
    """Yield the frames and records that are left behind the end. Raises TaskError."""
    _wait_for_calls(made.processor, until_none=True)
    yield from _sent(made, tell=True)


def frames_of(parts: Iterable[Sent]) -> list[Frame]:
    """Return the frames alone."""
    return [each for part in parts for each in part if isinstance(each, Frame)]


def _sent(made: HistoryPass, *, tell: bool) -> Iterator[Sent]:
    if frames := made.frames(tell=tell):
        yield frames
    if external := made.external():
        yield external


def _wait_for_calls(processor: Processor, *, until_none: bool) -> None:
    """Let records in flight have their turns: until there is room for more, or until there are none."""
    in_flight = processor.in_flight
    while in_flight is not None and (in_flight.count if until_none else in_flight.full):
        if not in_flight.work():
            time.sleep(CALLS_LOOK_MS / 1000)
