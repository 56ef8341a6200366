"""For which other tasks a task waits before it can close its checkpoint: whose, and since when."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from framework.core.aligned.task import TaskCore
from framework.execution.driver import TaskDriver
from protocol.ids import split_producer_id

WAIT_MS = 60_000  # beyond a checkpoint interval, after which it is said; and between two lines
NAMES_MAX = 5  # of tasks in one line

logger = logging.getLogger("grete")


class CheckpointWaits:
    """Watches the tasks of a worker. ``stages``: the names of the job's stages, in their order."""

    def __init__(self, stages: Sequence[str], checkpoint_interval_ms: int) -> None:
        self._stages, self._after_ms = stages, WAIT_MS + checkpoint_interval_ms
        self._seen: dict[str, tuple[int, float]] = {}  # task → the checkpoint closed last, and when that was seen first
        self._log_at: dict[str, float] = {}  # task → when its next line is due

    def told(self, drivers: Sequence[TaskDriver], now: float) -> dict[str, str]:
        """Return task → what it waits for at ``now`` (ms), in words, and log it once in WAIT_MS."""
        found = {}
        for driver in drivers:
            name, core = driver.wiring.name, driver.core
            reached = core.idleness.closed(core.frozen)
            closed, since = self._seen.setdefault(name, (reached, now))
            if closed != reached:
                self._seen[name] = reached, now
            elif now - since >= self._after_ms and driver.running and isinstance(core, TaskCore) and core.aligned:
                of, seconds = self._behind(core), int((now - since) / 1000)
                if not of:
                    continue
                last = ", ".join(f"{task} (last: {time})" for task, time in of.items())
                found[name] = f"for {seconds} s for the next checkpoint of {last}"
                if now >= self._log_at.get(name, now):
                    self._log_at[name] = now + WAIT_MS
                    logger.warning("waits for other tasks", extra={"task": name, "of": of, "since_s": seconds})
        return found

    def _behind(self, core: TaskCore) -> dict[str, str]:
        """Return the tasks whose markers hold up the open checkpoint → their last one, the longest behind first."""
        markers, closed = dict[int, int](), core.idleness.closed(core.frozen)
        for channel in core.inputs.channels.values():
            markers[channel.producer] = min(channel.marker, markers.get(channel.producer, channel.marker))
        behind = sorted((marker, producer) for producer, marker in markers.items() if marker <= closed)
        return {self._task(producer): _time(marker) for marker, producer in behind[:NAMES_MAX]}

    def _task(self, producer: int) -> str:
        stage, partition = split_producer_id(producer)
        return f"{self._stages[stage]}-{partition}"


def _time(checkpoint_id: int) -> str:
    """Return when a checkpoint was closed: its id is that time in ms."""
    if checkpoint_id <= 0:
        return "none yet"
    return datetime.fromtimestamp(checkpoint_id / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
