"""Fires the timers, windows and joins of one task that are due."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from framework.api.graph import StageGraph
from framework.api.methods import ReturnError, refuse_return
from framework.api.stateful import Stateful
from framework.api.timers import Timer
from framework.errors import ConfigError, FrameworkError, TaskError
from framework.execution.binding import bind_stateful, bound
from framework.execution.failures import TimerError, guarded_result, guarded_timer, ways
from framework.execution.site import Site
from framework.execution.timers import Due
from framework.execution.user_traceback import user_line
from framework.stores.overlay_store import OverlayStore


class Firing:
    """``bind`` comes first, with each instance of the task. ``late`` counts since the process started."""

    def __init__(self, stage: StageGraph, site: Site) -> None:
        self._stage, self._site = stage, site
        self._where = f"stage {stage.name}, partition {site.partition}"
        self._stateful: dict[str, Stateful] = {}  # by name
        self._late_before = 0  # records that those of earlier instances dropped
        self._on_timer: Callable[[Timer], None]

    @property
    def late(self) -> int:
        """Records that were late for windows and joins since the process started; a rollback may count some again."""
        return self._late_before + sum(each.late for each in self._stateful.values())

    def bind(self, task: Any, ids: Mapping[str, int]) -> None:
        """Give a new instance its timers, windows and joins; ``ids``: of the stores by name."""
        site, stage = self._site, self._stage
        self._late_before, self._stateful = self.late, {}

        def overlay_of(name: str) -> OverlayStore:
            return site.overlay.store(ids[name])

        for attribute, each in stage.stateful.items():
            guard = partial(guarded_result, site, each)
            self._stateful[each.name] = bind_stateful(
                each, overlay_of, site.timers, site.outputs, task, guard, lambda: site.overlay.undone
            )
            setattr(task, attribute, self._stateful[each.name])
        if stage.timers is not None:
            declared = stage.declared_timers
            schedule, cancel = partial(site.timers.schedule, ""), partial(site.timers.cancel, "")
            setattr(task, stage.timers, bound(declared, schedule=schedule, cancel=cancel))
            self._on_timer = guarded_timer(site, declared.errors, partial(self._call_on_timer, task.on_timer))

    def fire(self) -> None:
        """Run the timers that are due, in order; those that they set may be due, too. Raises TimerError."""
        timers, reading = self._site.timers, self._site.reading
        while (due := timers.pop()) is not None:
            reading.timers += 1
            try:
                self._fire_one(due)
            except Exception as error:
                if isinstance(error, FrameworkError) and not isinstance(error, TaskError):
                    raise
                raise self._failure(due, error) from error

    def drain(self) -> None:
        """Fire what is set, one timer after another, as if time went on up to the last one (E7). Raises TimerError.

        What is set meanwhile fires, too, up to that time; windows do beyond it. So a timer that sets itself again ends.
        """
        timers, time = self._site.timers, self._site.time
        assert time is not None
        silent = {name for name, each in self._stateful.items() if not each.tells}
        until, _ = timers.last(silent)
        while until is not None:
            while timers.move_to_next(until):
                time.catch_up(timers.now)
                self.fire()
            _, until = timers.last(silent)

    def _failure(self, due: Due, error: Exception) -> TimerError:
        """Return the error that says which timer, window or join failed, and where."""
        if due.owner:
            owner = self._stateful[due.owner]
            whose, policy = f"{owner.what} {due.owner}", owner.errors
            way = ways(f"such {owner.results}", type(owner).__name__) if owner.method else ""
        else:
            whose, policy, way = f"timer {due.key!r}", self._stage.declared_timers.errors, ways("such timers", "Timers")
        passable = policy != "fail" or isinstance(error, ReturnError)
        text = f"{self._where}: {whose} at {due.at}: {type(error).__name__}: {error}{user_line(error)}"
        return TimerError(text if passable else text + way, stage=self._stage.name)

    def _fire_one(self, due: Due) -> None:
        if not due.owner:
            self._on_timer(Timer(due.at, due.key))
        elif (owner := self._stateful.get(due.owner)) is not None:
            owner.fire(due.at, due.key)
        else:
            text = f"{self._where}: the state has timers of a window or join {due.owner!r}: declare it again"
            raise ConfigError(text, stage=self._stage.name)

    def _call_on_timer(self, on_timer: Callable[[Timer], object], timer: Timer) -> None:
        self._site.outputs.timestamp = timer.at
        if (returned := on_timer(timer)) is not None:
            refuse_return("on_timer", returned)
