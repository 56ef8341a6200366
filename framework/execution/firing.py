"""Calls the user's code for timers and windows that are due, in their order."""

from collections.abc import Mapping
from typing import Any

from framework.api.methods import refuse_return
from framework.api.timers import Timer
from framework.api.windows import WindowStore
from framework.errors import ConfigError, FrameworkError, TaskError
from framework.execution.outputs import Outputs
from framework.execution.process_loops import TimerError
from framework.execution.reading import Reading
from framework.execution.timers import Due, TimerQueue
from framework.execution.user_traceback import user_line


class Firing:
    """The timers and windows of one task instance. ``where`` names the task in errors."""

    def __init__(
        self,
        task: Any,
        timers: TimerQueue,
        windows: Mapping[str, WindowStore[Any, Any]],
        outputs: Outputs,
        reading: Reading,
        *,
        stage: str,
        where: str,
    ) -> None:
        """``windows``: by name, those of the instance."""
        self._task, self._timers, self._windows = task, timers, windows
        self._outputs, self._reading = outputs, reading
        self._stage, self._where = stage, where

    def fire(self) -> None:
        """Run the timers that are due, in order; those that they set may be due, too. Raises TimerError."""
        while (due := self._timers.pop()) is not None:
            self._reading.timers += 1
            try:
                self._fire_one(due)
            except Exception as error:
                if isinstance(error, FrameworkError) and not isinstance(error, TaskError):
                    raise
                whose = f"window {due.owner}" if due.owner else f"timer {due.key!r}"
                text = f"{self._where}: {whose} at {due.at}: {type(error).__name__}: {error}{user_line(error)}"
                raise TimerError(text, stage=self._stage) from error

    def _fire_one(self, due: Due) -> None:
        if not due.owner:
            self._outputs.timestamp = due.at
            if (returned := self._task.on_timer(Timer(due.at, due.key))) is not None:
                refuse_return("on_timer", returned)
        elif (window := self._windows.get(due.owner)) is not None:
            window.fire(due.at, due.key)
        else:
            raise ConfigError(
                f"{self._where}: the state has timers of window {due.owner!r}: declare it again", stage=self._stage
            )
