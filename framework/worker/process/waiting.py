"""The tasks whose markers a task waits for: since when, and their last checkpoints.

An aligned task waits for checkpoints before it can close its own. A deterministic one waits for each stream, because
the next record in the order of logical time may come in any (D1).
"""

import logging
from collections.abc import Callable, Sequence

from grete.clock_text import clock_text
from grete.core.idleness import longest_interval_ms
from grete.core.ports import Core
from grete.execution.engine.driver import TaskDriver
from grete.protocol.ids import TopicPartition, split_producer_id
from grete.protocol.report import OtherTasks
from grete.settings import Settings

WAIT_MS = 60_000  # after which a wait is said, for a checkpoint beyond the interval; and between two lines
SHOWN_MS = 1_000  # after which a status has it, for a checkpoint beyond the interval
NAMES_MAX = 5  # of tasks in one line

logger = logging.getLogger("grete")


class TaskWaits:
    """Watches the tasks of a worker. ``stages``: the names of the job's stages, by their numbers.

    ``look`` asks the log where a partition ends: what is there and was not fetched is fetched then.
    """

    def __init__(self, stages: Sequence[str], settings: Settings, look: Callable[[TopicPartition], object]) -> None:
        self._stages, self._look = stages, look
        self._interval_ms = settings.checkpoint_interval_ms
        self._idle_ms = max(self._interval_ms, longest_interval_ms(settings.idle_checkpoint_interval_ms))
        self._seen: dict[str, tuple[int, float]] = {}  # task → how far it had come, and when that was seen first
        self._log_at: dict[str, float] = {}  # task → when its next line is due

    def forget(self) -> None:
        """Begin again: until now the log did not answer, so no task could go on."""
        self._seen.clear()

    def told(self, drivers: Sequence[TaskDriver], now: float) -> dict[str, str]:
        """Return task → what it waits for at ``now`` (ms), in words, and log it once in WAIT_MS."""
        found = {}
        for driver in drivers:
            name, core = driver.wiring.name, driver.core
            reached, since = core.reached_t, now
            if name in self._seen and self._seen[name][0] == reached and _reads(driver):
                since = self._seen[name][1]
            self._seen[name] = reached, since
            streams = driver.wiring.deterministic
            of = self._behind(core) if self._has_waited(driver, now - since, WAIT_MS) else {}
            if of:
                seconds, what = int((now - since) / 1000), "stream" if streams else "next checkpoint"
                last = ", ".join(f"{task} (last: {time})" for task, time in of.items())
                found[name] = f"for {seconds} s for the {what} of {last}"
                if now >= self._log_at.get(name, now):
                    self._log_at[name] = now + WAIT_MS
                    fields = {"task": name, "for": what, "of": of, "since_s": seconds}
                    logger.warning("waits for other tasks", extra=fields)
                    for partition in {partition for _, partition in driver.wiring.channels}:
                        self._look(partition)
        return found

    def behind(self, driver: TaskDriver, now: float) -> OtherTasks | None:
        """Return for which tasks a task waits, and for how many seconds it has, once ``told`` has looked; None: not."""
        _, since = self._seen.get(driver.wiring.name, (0, now))
        if not (self._has_waited(driver, now - since, SHOWN_MS) and _reads(driver)):
            return None
        return OtherTasks(round((now - since) / 1000, 1), tuple(self._behind(driver.core)))

    def _has_waited(self, driver: TaskDriver, waited_ms: float, least_ms: float) -> bool:
        """Tell whether a task waits for longer than it must: for a checkpoint, idle ones close some less often (A1)."""
        if driver.wiring.deterministic or waited_ms < least_ms + self._interval_ms:
            return driver.wiring.deterministic and waited_ms >= least_ms
        reached = driver.core.reached_t
        others_are_ahead = any(t > reached for _, t in driver.core.inputs.reached_by_channel())
        return others_are_ahead or waited_ms >= least_ms + self._idle_ms

    def _behind(self, core: Core) -> dict[str, str]:
        """Return the tasks that hold up this one → how far they have come, the longest behind first."""
        last = dict[int, int]()
        for producer, t in core.inputs.reached_by_channel():
            last[producer] = min(t, last.get(producer, t))
        behind = sorted((t, producer) for producer, t in last.items() if t <= core.reached_t)
        return {self._task(producer): _time(t) for t, producer in behind[:NAMES_MAX]}

    def _task(self, producer: int) -> str:
        stage, partition = split_producer_id(producer)
        return f"{self._stages[stage]}-{partition}"


def _reads(driver: TaskDriver) -> bool:
    """Whether a task would go on if something came: else its sink, its sends or its end hold it up."""
    return driver.core.waits_for_tasks and driver.running and not driver.mode.held_up


def _time(t: int) -> str:
    """Return a time of the log's clock in µs as a date: a logical time, or that of a checkpoint."""
    if t <= 0:
        return "none yet"
    return f"{clock_text(t / 1_000, utc=True)} UTC"
