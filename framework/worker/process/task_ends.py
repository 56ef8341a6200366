"""The ends of single tasks while the others of their worker go on: which one starts again, and when (C5)."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from grete.core.supervision.policy import Policy
from grete.errors import Fenced, FrameworkError, Halted, StoreCorrupted
from grete.execution.engine.driver import TaskDriver
from grete.execution.records.user_traceback import user_traceback
from grete.halts import HaltCode
from grete.protocol.report import ReadUpTo, TaskEnd, TaskEndReason, TaskReport, TaskState
from grete.settings import Settings
from grete.worker.logs.end_log import kind_of, place_of
from grete.worker.process.status import moved, read_up_to, task_report

logger = logging.getLogger("grete")


class TaskEnds:
    """The ends of one worker's tasks. A failed one starts again, with a worker's back-off; a fenced one does not."""

    def __init__(self, settings: Settings, mono_ms: Callable[[], float]) -> None:
        self.fenced: Fenced | None = None  # of the first task that was
        self.halted: Halted | None = None  # likewise: a person must look, so all tasks stop
        self.reports: dict[str, TaskReport] = {}  # task that is not there → what it said last
        self._policy, self._mono_ms = Policy.of(settings), mono_ms
        self._in_a_row: dict[str, tuple[int, ReadUpTo | None]] = {}  # task → ends without progress, last one
        self._due_ms: dict[str, float] = {}  # task → when it starts again
        self._last: dict[str, TaskEnd] = {}  # task → its last end, until it has committed what it read since
        self._counts: dict[str, Counter[TaskEndReason]] = {}  # task → its ends by reason

    @property
    def waiting(self) -> bool:
        """Whether a task waits for its next start."""
        return bool(self._due_ms)

    @property
    def due_in_ms(self) -> float:
        """The ms until the next task starts again."""
        return min(self._due_ms.values(), default=float("inf")) - self._mono_ms()

    def due(self, leaves: Callable[[str], bool]) -> list[str]:
        """Return the tasks that are to start again now, and forget that they wait; none that ``leaves``."""
        now = self._mono_ms()
        names = [name for name, due_ms in self._due_ms.items() if due_ms <= now and not leaves(name)]
        for name in names:
            del self._due_ms[name], self.reports[name]
        return names

    def is_fenced(self, name: str) -> bool:
        """Whether another process has a task, as far as is known here."""
        return name in self.reports and self.reports[name].status is TaskState.FENCED

    def forget(self, name: str) -> None:
        """Know nothing of a task any more: it is hosted elsewhere, or begins again as if it was new."""
        for known in (self.reports, self._due_ms, self._last, self._in_a_row, self._counts):
            known.pop(name, None)

    def counts(self, name: str) -> dict[TaskEndReason, int]:
        """Return the number of a task's ends alone, by reason."""
        return dict(self._counts.get(name, ()))

    def last(self, name: str, driver: TaskDriver | None) -> TaskEnd | None:
        """Return a task's last end, until it has committed what it read since; ``driver``: None if it is not there."""
        if (
            name in self._last
            and driver is not None
            and moved(self._in_a_row[name][1], read_up_to(driver.core.commits.committed))
        ):
            del self._last[name]
        return self._last.get(name)

    def note(self, driver: TaskDriver, error: FrameworkError) -> None:
        """Take the end of a task by an error of its own: log it, and plan its next start, if it is to have one."""
        name, report = driver.wiring.name, task_report(driver)
        trace = user_traceback(error.__cause__) or ""
        count = self._counted(name, driver)
        logged, wait_ms = error.plain() | {"kind": kind_of(error)}, None
        if not isinstance(error, Fenced | Halted) and count > self._policy.restarts_max:
            text = f"{name} ended {count} times without progress between: {error}"
            cause, error = error, Halted.from_plain(error.plain() | {"code": HaltCode.GIVEN_UP.value}, text)
            error.__cause__ = cause  # it says what to do
        match error:
            case Fenced():
                self.fenced, state = self.fenced or error, TaskState.FENCED
            case Halted():
                self.halted, state = self.halted or error, TaskState.HALTED
            case _:
                state, wait_ms = TaskState.ENDED, self._policy.restart_wait_ms(count)
                self._due_ms[name] = self._mono_ms() + wait_ms
        reason = _reason(error, state)
        self._last[name] = TaskEnd(
            reason=reason,
            text=str(error),
            traceback=trace,
            code=str(error.code.value) if isinstance(error, Halted) else "",
            restart_ms=wait_ms,
            at_ms=time.time_ns() // 1_000_000,
            place=place_of(error, [driver.wiring]),
        )
        self._counts.setdefault(name, Counter())[reason] += 1
        self.reports[name] = replace(
            report, status=state, settled=False, idle_in=None, ended_in=None, sink_trouble=None
        )
        if state is TaskState.FENCED:
            logger.warning("task ended", extra=logged)
        else:
            logger.error("task ended", extra=logged | {"traceback": trace, "ends": count, "restart_ms": wait_ms})

    def _counted(self, name: str, driver: TaskDriver) -> int:
        """Return the number of a task's ends without progress between, this one included."""
        (count, last), now = self._in_a_row.get(name, (0, None)), read_up_to(driver.core.commits.committed)
        self._in_a_row[name] = 1 if moved(last, now) else count + 1, now or last
        return self._in_a_row[name][0]


def _reason(error: FrameworkError, state: TaskState) -> TaskEndReason:
    if state is TaskState.ENDED:
        return "store corrupted" if isinstance(error, StoreCorrupted) else "task error"
    return "fenced" if state is TaskState.FENCED else "halted"
