"""Moves the event time of one task, and fires what is due by it (E1, E7).

Each move takes effect behind the records before it: at once, unless some of those wait for calls (0056).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from grete.api.jobs.graph import StageGraph
from grete.errors import TaskError
from grete.execution.calls.flight import Records
from grete.execution.task_code.firing import Firing
from grete.execution.task_code.site import Site
from grete.execution.timing.event_time import AFTER_ALL, BEFORE_ALL, OUTSIDE, EventTime, TimeSource
from grete.execution.timing.reserved_stores import FIRING
from grete.execution.timing.timers import TimerQueue

Move = Callable[[], None]

_DUE = AFTER_ALL  # in FIRING: what is due is left, and no more
_DRAIN = BEFORE_ALL  # in FIRING: and then a drain begins; else the time up to which it goes


class TaskTime:
    """The event time of a task as its processor moves it, in ms. ``load`` comes first, and after each rollback."""

    def __init__(
        self, time: EventTime, stage: StageGraph, site: Site, firing: Firing, then: Callable[[Move], None]
    ) -> None:
        """``then`` does a step behind all records so far."""
        self._time, self._site, self._firing, self._then = time, site, firing, then
        self._held_ms = max((each.held_ms for each in stage.stateful.values()), default=0)
        self._drained = False  # what was set when all sources had ended has fired, or is about to
        self._until: int | None = None  # _DRAIN, or the time up to which the drain goes that is under way
        self._turns = True

    def load(self, get: Callable[[bytes], bytes | None]) -> None:
        """Go back to the saved state, of which the timers are loaded already."""
        self._time.load(self._site.timers.now, get)
        self._drained = self._time.ended and not self._time.goes_on
        raw = get(FIRING)
        self._firing.left, self._until = raw is not None, None
        if raw is not None and (until := int.from_bytes(raw, signed=True)) != _DUE:
            self._until = until

    def save(self) -> Iterator[tuple[bytes, bytes | int | None]]:
        """Yield the state as (key, value); None: it has no such entry."""
        now, timers = self._time.now, self._site.timers
        assert timers.now == now, f"event time is at {now}, and that of timers at {timers.now}"
        assert self._site.fire is not None or not self.left, "timers are left of a task that has none"
        yield from self._time.save()
        yield FIRING, (_DUE if self._until is None else self._until) if self.left else None

    @property
    def left(self) -> bool:
        """Tell whether due timers have not fired: they precede the next record and the watermark."""
        return self._firing.left or self._until is not None

    def _begin_call(self, *, whole: bool = False) -> None:
        """Begin a call; one that may fire all begins with what a commit between two slices has left."""
        self._firing.begin_slice(whole=whole)
        if self.left and not self._firing.slices:
            self._then(self._fire)

    @property
    def holds(self) -> bool:
        """Tell whether no record in flight has its turn now: timers that are due are left to the next slice."""
        return self._firing.slices and self.left

    def begin_slice(self) -> None:
        """Begin a turn of a record in flight: no more than a slice may fire in it."""
        self._firing.begin_slice(whole=not self._turns)

    def by_slices(self, *, turns: bool = True) -> None:
        """Let no call fire more than a slice of timers; nor, with ``turns``, the turn of a record in flight."""
        self._firing.slices, self._turns = True, turns

    def fire_slice(self) -> None:
        """Let the next slice of them fire. Raises TimerError."""
        self._firing.begin_slice()
        self._fire()

    def _fire(self) -> None:
        """Fire what is due; in a drain, then what is set, one timer after another, as if time went on (E7).

        It does so up to the last one that was set. What is set meanwhile fires, too, up to that time; windows do beyond
        it. So a timer that sets itself again ends. Raises TimerError.
        """
        firing, timers = self._firing, self._site.timers
        while firing.fire():
            if self._until == _DRAIN:
                self._until, _ = firing.last
            while self._until is not None and not timers.move_to_next(self._until):
                _, self._until = firing.last
            if self._until is None:
                return
            self._time.catch_up(timers.now)

    @property
    def watermark(self) -> tuple[int, bool]:
        """The watermark for consumers: the task sends no record before this time (ms); and whether it is idle.

        What windows and joins send later is older than event time, by their ``held_ms`` and 1 ms at most. AFTER_ALL:
        the task sends no more, as all that it reads has ended.
        """
        if self._time.ended:
            return AFTER_ALL, True
        return max(BEFORE_ALL, self._time.now - self._held_ms), self._time.idle

    @property
    def watermark_behind_a_record(self) -> tuple[int, bool]:
        """The watermark as soon as a source has brought a record, whether it was idle or had ended before."""
        return max(BEFORE_ALL, self._time.now - self._held_ms), False

    def around(self, source: TimeSource, process: Move) -> None:
        """Process records of a source, with the moves before and behind them."""
        self._begin_call(whole=source[0] != OUTSIDE)  # records of a channel do not move time
        self._then(partial(self._begin, source))
        process()
        self._move(partial(self._time.end, source))

    def cut(self) -> None:
        """Forget the end of what is under way: the rest of it comes again."""
        self._time.cut()

    def watermarks(self, marks: Iterable[tuple[TimeSource, int, bool]]) -> None:
        """Take what producers of channels have told of their event time: source, ms, whether it is idle (E2)."""
        self._begin_call()
        self._move(partial(self._time.watermarks, marks))

    def goes_on(self) -> None:
        """Note records of channels that are merged: if all had ended, what they set fires with the next end.

        Whether their channel has ended still, its producer tells at the end of their step of logical time (E2).
        """
        if self._time.ended:
            self._drained, self._time.goes_on = False, True

    def set_idle(self, source: TimeSource, *, ended: bool) -> None:
        """Note that nothing comes from a source for now (E4), or that it has ended (E7)."""
        self._begin_call()
        self._move(partial(self._time.set_idle, source, ended=ended))

    def catch_up(self, now: int) -> None:
        """Let event time be at least ``now``."""
        self._move(partial(self._time.catch_up, now))

    def _begin(self, source: TimeSource) -> None:
        self._drained = False
        self._time.begin(source)

    def _move(self, how: Move) -> None:
        self._then(partial(self._moved, how))

    def _moved(self, how: Move) -> None:
        self._time.goes_on = False
        how()
        site = self._site
        site.timers.now = self._time.now
        drained, self._drained = self._drained, self._time.ended
        if site.fire is not None and self._drained and not drained:
            self._until = _DRAIN
        if self._until is not None or (site.fire is not None and site.timers.due <= site.timers.now):
            self._fire()


def time_told(stage: StageGraph, timers: TimerQueue, records: Records | None) -> Callable[[], int | None]:
    """Return the function behind ``ctx.event_time``; ``records``: those in flight, if there are any.

    Only timers, windows and the like make event time a function of the records, not of how they come.
    """

    def tell() -> int | None:
        if not stage.goes_by_time:
            raise TaskError(
                "ctx.event_time: this task keeps no event time: declare Timers() with on_timer, or a window",
                stage=stage.name,
            )
        if records is not None:
            records.saw_time()
        return None if timers.now == BEFORE_ALL else timers.now

    return tell
