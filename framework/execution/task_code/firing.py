"""Fires the timers, windows and joins of one task that are due."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from grete.api.jobs.graph import StageGraph
from grete.api.serdes.serde import functions_of
from grete.api.stateful.declaration import Stateful
from grete.api.tasks.methods import ReturnError, refuse_return
from grete.api.tasks.timers import Clock, Timer, key_of, text_of
from grete.errors import ConfigError, FrameworkError, TaskError
from grete.execution.limits import FIRED_TIMERS, SLICE_TIMERS
from grete.execution.records.user_traceback import user_line
from grete.execution.task_code.binding import bind_stateful, bound
from grete.execution.task_code.failures import TimerError, guarded_result, guarded_timer, timer_name, ways
from grete.execution.task_code.site import Site
from grete.execution.timing.event_time import BEFORE_ALL
from grete.execution.timing.floors import Floors
from grete.execution.timing.reserved_stores import TIMERS
from grete.execution.timing.timers import WALL, DueTimer, TimerQueue
from grete.quoting import named_error
from grete.stores.overlay.overlay_store import OverlayStore

ALL = 1 << 62  # more timers than there ever are


class Firing:
    """``bind`` comes first, with each instance of the task. ``late`` counts since the process started."""

    def __init__(self, stage: StageGraph, site: Site, floors: Floors) -> None:
        self._stage, self._site, self._floors = stage, site, floors
        self._where = site.task.where
        self._stateful: dict[str, Stateful] = {}  # by name
        self._late_before = 0  # records that those of earlier instances dropped
        self._on_timer: dict[Clock, Callable[[DueTimer], None]] = {}
        self.wall = TimerQueue(site.overlay.store(TIMERS), wall=True) if "wall" in stage.timers else None
        self._in_init = False
        self.slices = False  # no more than a slice of timers fires in one call (E10)
        self.left = False  # some that are due have not fired: they come before all else
        self._may = ALL  # how many may fire in this call

    @property
    def late(self) -> int:
        """Records that were late for windows and joins since the process started; a rollback may count some again."""
        return self._late_before + sum(each.late for each in self._stateful.values())

    def bind(self, task: Any, ids: Mapping[str, int]) -> None:
        """Give a new instance its timers, windows and joins; ``ids``: of the stores by name."""
        site, stage = self._site, self._stage
        self._in_init = True
        self._late_before, self._stateful = self.late, {}
        if self.wall is not None:
            self.wall.reload(BEFORE_ALL)

        def overlay_of(name: str) -> OverlayStore:
            return site.overlay.store(ids[name])

        for attribute, each in stage.stateful.items():
            guard = partial(guarded_result, site, each)
            self._stateful[each.name] = bind_stateful(
                each,
                overlay_of,
                site.timers,
                self._floors,
                site.outputs,
                task,
                guard,
                undone=lambda: site.overlay.undone,
            )
            if output := stage.late_outputs.get(each.name):
                vars(self._stateful[each.name])["send_late"] = partial(self._send_late, task, output)
            setattr(task, attribute, self._stateful[each.name])
        for clock, attribute in stage.timers.items():
            declared, wall = stage.declared_timers(clock), clock == "wall"
            queue, owner = (self.wall, WALL) if wall and self.wall is not None else (site.timers, "")
            schedule, cancel = partial(queue.schedule, owner), partial(queue.cancel, owner)
            if (text := text_of(declared.key)) is not None:
                schedule, cancel = partial(_with_text, text, schedule), partial(_with_text, text, cancel)
            if wall and site.clock is not None:
                schedule = partial(self._schedule_decided, schedule)
            setattr(task, attribute, bound(declared, schedule=schedule, cancel=cancel))
            call = partial(self._call_on_timer, task.on_timer)
            guarded = guarded_timer(site, declared.errors, functions_of(declared.key)[0], call)
            self._on_timer[clock] = partial(_fire, guarded, clock, key_of(declared.key) or str)

    def _send_late(self, task: Any, output: str) -> None:
        """Send the record in process, if there is one, to an output of the task, which is bound by then."""
        if (record := self._site.reading.record) is not None:
            aside = getattr(task, output)
            aside.send(record.key, record.value, timestamp=record.timestamp, headers=record.headers)

    def begin(self) -> None:
        """Note that the task's ``init`` is over."""
        self._in_init = False

    def begin_slice(self, *, whole: bool = False) -> None:
        """Begin a call; ``whole``: all fire in it that are due."""
        self._may = ALL if whole or not self.slices else SLICE_TIMERS

    def fire(self) -> bool:
        """Run the timers that are due, in order; those that they set may be due, too. Raises TimerError.

        Return whether none is left for the next slice.
        """
        timers = self._site.timers
        self.left = True
        try:
            while self._may > 0 or not timers.is_due():
                if (due := timers.pop_next()) is None:
                    self.left = False
                    break
                self._may -= 1
                self._fire_one(due)
        except TimerError:
            raise
        except TaskError as error:
            raise TimerError(f"{self._where}: {error}", stage=self._stage.name) from error
        return not self.left

    def settle(self) -> None:
        """Note which timers are gone, behind each batch."""
        for queue in filter(None, (self._site.timers, self.wall)):
            queue.settle()

    def fire_wall(self, now: int) -> None:
        """Run wall-clock timers up to ``now`` (ms), in order, but only some if they are many. Raises TimerError."""
        assert self.wall is not None
        self.wall.now = now
        for _ in range(FIRED_TIMERS):
            if (due := self.wall.pop()) is None:
                return
            self._fire_one(due)

    def fire_wall_once(self, now: int) -> None:
        """Run the wall-clock timers up to ``now`` (ms), in order, and none that is set by them. Raises TimerError."""
        assert self.wall is not None
        for due in self.wall.pop_all(now):
            self._fire_one(due)

    @property
    def last(self) -> tuple[int | None, int | None]:
        """The times of the last timer that is set, and of the last one of a window; of those that tell something."""
        return self._site.timers.last({name for name, each in self._stateful.items() if not each.tells})

    def _schedule_decided(self, schedule: Callable[..., None], at: int, key: Any = "") -> None:
        if self._in_init:
            raise TaskError(
                "init sets a wall-clock timer: init runs at each start, and in deterministic mode a start must change "
                "nothing. Set it in process or on_timer",
                stage=self._stage.name,
            )
        schedule(at, key)

    def _failure(self, due: DueTimer, error: Exception) -> TimerError:
        """Return the error that says which timer, window or join failed, and where."""
        if due.owner in self._stateful:
            owner = self._stateful[due.owner]
            whose, policy = f"{owner.what} {due.owner}", owner.errors
            way = ways(f"such {owner.results}", type(owner).__name__) if owner.method else ""
        else:
            clock = _clock_of(due)
            whose = timer_name(clock, due.key)
            policy, way = self._stage.declared_timers(clock).errors, ways("such timers", "Timers")
        passable = policy != "fail" or isinstance(error, ReturnError)
        text = f"{self._where}: {whose} at {due.at}: {named_error(error)}{user_line(error)}"
        return TimerError(text if passable else text + way, stage=self._stage.name)

    def _fire_one(self, due: DueTimer) -> None:
        self._site.reading.timers += 1
        try:
            self._call(due)
        except Exception as error:
            if isinstance(error, FrameworkError) and not isinstance(error, TaskError):
                raise
            raise self._failure(due, error) from error

    def _call(self, due: DueTimer) -> None:
        if due.owner in ("", WALL):
            self._on_timer[_clock_of(due)](due)
        elif (owner := self._stateful.get(due.owner)) is not None:
            owner.fire(due.at, due.key)
        else:
            text = f"{self._where}: the state has timers of a window or join {due.owner!r}: declare it again"
            raise ConfigError(text, stage=self._stage.name)

    def _call_on_timer(self, on_timer: Callable[[Timer[Any]], object], timer: Timer[Any]) -> None:
        early = timer.clock == "wall"  # what it sends must not be late for what waits for this task's event time
        self._site.outputs.timestamp = max(timer.at, self._site.timers.now) if early else timer.at
        if (returned := on_timer(timer)) is not None:
            refuse_return("on_timer", returned)


def _clock_of(due: DueTimer) -> Clock:
    """Return the clock of one of the task's own timers."""
    return "wall" if due.owner == WALL else "event"


def _fire(call: Callable[[Timer[Any]], None], clock: Clock, key_of: Callable[[str], Any], due: DueTimer) -> None:
    call(Timer(due.at, key_of(due.key), clock))


def _with_text(text: Callable[[Any], str], act: Callable[[int, str], None], at: int, key: Any = "") -> None:
    """Set or cancel a timer whose key is not just text."""
    act(at, text(key))
