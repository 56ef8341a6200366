"""Whether a process is alive, and whether its tasks are ready: with the reasons if not."""

import sys
import threading
import time
import traceback

import msgspec

from grete.monitor.job_view import JobView
from grete.protocol.report import ENDED_STATES, TaskState

LIVE_SHARE = 0.5  # of liveness_timeout_ms: a probe learns of a loop that is stuck before the watchdog ends it
AGE_INTERVALS, AGE_S_MIN = 10, 10.0  # of a task's last checkpoint, beyond which it does not keep up


class StuckLoop(msgspec.Struct, frozen=True, kw_only=True):
    """A loop that does not turn: for how long, and where it is."""

    since_s: float
    stack: str


class Pulse:
    """Tells whether the loop of the thread that makes it goes on; any thread calls ``turned`` when it does."""

    def __init__(self, live_s: float) -> None:
        self._live_s = live_s
        self._thread = threading.get_ident()
        self._turned_s = time.monotonic()

    def turned(self) -> None:
        """The loop has turned, or a record of a long turn is done."""
        self._turned_s = time.monotonic()

    def stuck(self) -> StuckLoop | None:
        """Return for how long the loop has not turned, and where it is; None: it turns."""
        since_s = time.monotonic() - self._turned_s
        if since_s < self._live_s:
            return None
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # documented
        stack = [] if frame is None else traceback.format_stack(frame)
        return StuckLoop(since_s=round(since_s, 1), stack="".join(stack))


def keeps_up_s(view: JobView) -> float:
    """Return the age in seconds that the last checkpoint of a task may have, for it to keep up."""
    return max(AGE_S_MIN, AGE_INTERVALS * view.checkpoint_interval_ms / 1_000)


def not_ready(view: JobView | None) -> list[str]:
    """Return the reasons why a job is not ready: a worker or a task does not run or keep up, or the log is away."""
    if view is None:
        return ["the job is starting"]
    reasons = [] if view.log_away is None else [f"the log does not answer: {view.log_away}"]
    for worker in view.workers:
        if worker.fenced:
            reasons.append(f"worker {worker.number}: another process has its tasks")
        elif worker.halted and worker.last_end is not None:
            reasons.append(f"worker {worker.number}: it has halted: {worker.last_end.text}")
        elif not worker.running and worker.last_end is not None:
            end = worker.last_end
            reasons.append(f"worker {worker.number}: its process has ended ({end.reason}: {end.text})")
        elif not worker.running:
            reasons.append(f"worker {worker.number}: its process has ended and will be started again")
        elif worker.is_silent:
            reasons.append(f"worker {worker.number}: it has said nothing for {worker.silent_s:,.0f} s")
        elif not worker.tasks:
            reasons.append(f"worker {worker.number}: it is starting")
    bound_s = keeps_up_s(view)
    for _, task in view.tasks():
        name, age_s = task.name, view.age_s(task)
        if task.status in ENDED_STATES and task.end is not None:
            reasons.append(f"{name}: {task.status}: {task.end.text}")
        elif task.status is not TaskState.RUNNING:
            to_read = task.restore.total - task.restore.done
            left = f", {to_read:,} messages of its changelog left" if to_read > 0 else ""
            reasons.append(f"{name}: {task.status}{left}")
        elif age_s is not None and age_s > bound_s:
            waits = f", waits {task.waits}" if task.waits else ""
            trouble = f", sink: {task.sink_trouble}" if task.sink_trouble else ""
            reasons.append(f"{name}: no checkpoint for {age_s:,.0f} s{waits}{trouble}")
    return reasons
