"""Fires the timers and windows of one task that are due."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from framework.api.graph import StageGraph
from framework.api.methods import ReturnError, refuse_return
from framework.api.timers import Timer
from framework.api.windows import WindowStore
from framework.errors import ConfigError, FrameworkError, TaskError
from framework.execution.binding import bind_window, bound
from framework.execution.failures import TimerError, guarded_timer, guarded_window, ways
from framework.execution.site import Site
from framework.execution.timers import Due
from framework.execution.user_traceback import user_line


class Firing:
    """``bind`` comes first, with each instance of the task. ``late`` counts since the process started."""

    def __init__(self, stage: StageGraph, site: Site) -> None:
        self._stage, self._site = stage, site
        self._where = f"stage {stage.name}, partition {site.partition}"
        self._windows: dict[str, WindowStore[Any, Any]] = {}
        self._late_before = 0  # records that windows of earlier instances dropped
        self._on_timer: Callable[[Timer], None]

    @property
    def late(self) -> int:
        """Records that windows have dropped as late since the process started; a rollback may count some again."""
        return self._late_before + sum(window.late for window in self._windows.values())

    def bind(self, task: Any, ids: Mapping[str, int]) -> None:
        """Give a new instance its timers and windows; ``ids``: of the stores by name."""
        site, stage = self._site, self._stage
        self._late_before, self._windows = self.late, {}
        for attribute, window in stage.windows.items():
            overlay = site.overlay.store(ids[window.name])
            guard = partial(guarded_window, site, window)
            self._windows[window.name] = bind_window(window, overlay, site.timers, site.outputs, task.on_window, guard)
            setattr(task, attribute, self._windows[window.name])
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

    def _failure(self, due: Due, error: Exception) -> TimerError:
        """Return the error that says which timer or window failed, and where."""
        if due.owner:
            kind = type(self._windows[due.owner]).__name__
            whose, policy, way = f"window {due.owner}", self._windows[due.owner].errors, ways("such windows", kind)
        else:
            whose, policy, way = f"timer {due.key!r}", self._stage.declared_timers.errors, ways("such timers", "Timers")
        passable = policy != "fail" or isinstance(error, ReturnError)
        text = f"{self._where}: {whose} at {due.at}: {type(error).__name__}: {error}{user_line(error)}"
        return TimerError(text if passable else text + way, stage=self._stage.name)

    def _fire_one(self, due: Due) -> None:
        if not due.owner:
            self._on_timer(Timer(due.at, due.key))
        elif (window := self._windows.get(due.owner)) is not None:
            window.fire(due.at, due.key)
        else:
            raise ConfigError(
                f"{self._where}: the state has timers of window {due.owner!r}: declare it again", stage=self._stage.name
            )

    def _call_on_timer(self, on_timer: Callable[[Timer], object], timer: Timer) -> None:
        self._site.outputs.timestamp = timer.at
        if (returned := on_timer(timer)) is not None:
            refuse_return("on_timer", returned)
