"""The rest of what a deterministic task was given, while timers are due that come before it (E10)."""

from collections import deque
from collections.abc import Callable
from functools import partial

from grete.execution.calls.flight import Records
from grete.execution.records.reading import Reading
from grete.execution.task_code.task_time import TaskTime
from grete.protocol.record_batch import RecordBatch


class BehindTimers:
    """The steps of what was given last that wait, of one task. Where records are in flight, they wait behind these."""

    def __init__(self, time: TaskTime | None, records: Records | None, reading: Reading) -> None:
        self.done = 0  # batches of what was given last that are processed, if timers are left
        self._time, self._records, self._reading = time, records, reading
        self._steps: deque[Callable[[], None]] = deque()
        self._stepping = False
        self._alone = False  # timers are left of a commit, so nothing waits that would tell what comes of them
        self._rows: RecordBatch | None = None
        self._last_t = -1  # of the decision on these rows

    @property
    def left(self) -> bool:
        """Whether timers are left."""
        return self._time is not None and self._time.left

    def reset(self) -> None:
        """Go back to the saved state, which may have timers that are left."""
        self._steps.clear()
        self._alone, self._rows = self.left, None

    def begin(self, rows: RecordBatch | None = None, last_t: int = -1) -> None:
        """Note that something new is given: rows, of a decision that ends at ``last_t``, or something else."""
        self.done, self._rows, self._last_t = 0, rows, last_t

    def then(self, step: Callable[[], None]) -> None:
        """Do a step behind all before it: at once, or as part of the step that is under way."""
        if self._stepping:
            step()
        elif self._records is not None and self._records.count:
            self._records.then(partial(self._do, step))
        elif self.left:
            self._steps.append(step)
        else:
            self._do(step)

    def first(self, step: Callable[[], None]) -> None:
        """Do a step behind the timers, before all others."""
        self._steps.appendleft(step)

    def go_on(self, told: Callable[[], None]) -> None:
        """Do what can be done behind a slice of timers; ``told`` behind the last one if nothing else would tell."""
        if self._alone and not self.left:
            self._alone = False
            told()
        while self._steps and not self.left:
            self._do(self._steps.popleft())

    @property
    def reached(self) -> tuple[int, int]:
        """The number of rows, or batches, that are processed of what was given last, and the offset behind them."""
        rows = self._rows
        if rows is None:
            return self.done, -1
        if self._records is None:
            count = len(rows.keys) - self._reading.left
        else:
            end = self._records.reached.get(rows.source, -1)
            count = sum(rows.offset_at(index) < end for index in range(len(rows.keys)))
        assert count > 0, f"{rows.source}: timers are left before the first row of a decision"
        return count, rows.offset_at(count - 1) + 1

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two turns of a task."""
        assert not self._stepping, "a step goes on between two turns"
        assert self.left or not self._steps, f"{len(self._steps)} steps wait for no timer"
        assert self.left or not self._alone, "timers that are gone are still to be told of"

    def cut(self) -> int | None:
        """Drop all that waits: it comes again. Return when the decision on the rows ends, if it was one on rows."""
        self._steps.clear()
        if self._records is not None:
            self._records.clear()
        if self._time is not None:
            self._time.cut()
        rows, self._rows, self._alone = self._rows, None, True
        return None if rows is None else self._last_t

    def _do(self, step: Callable[[], None]) -> None:
        self._stepping = True
        try:
            step()
        finally:
            self._stepping = False
