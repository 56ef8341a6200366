"""For which other tasks a task waits, since when, and how far those have come.

An aligned task waits for checkpoints before it can close its own. A deterministic one waits for each stream, because
the next record in the order of logical time may come in any (D1).
"""

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from framework.core.aligned.task import TaskCore
from framework.core.deterministic.merge_channel import upto
from framework.core.deterministic.task import DeterministicCore
from framework.execution.driver import TaskDriver
from protocol.ids import split_producer_id

WAIT_MS = 60_000  # after which a wait is said, for a checkpoint beyond the interval; and between two lines
NAMES_MAX = 5  # of tasks in one line

logger = logging.getLogger("grete")


class TaskWaits:
    """Watches the tasks of a worker. ``stages``: the names of the job's stages, in their order."""

    def __init__(self, stages: Sequence[str], checkpoint_interval_ms: int) -> None:
        self._stages, self._interval_ms = stages, checkpoint_interval_ms
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
            reached, since = _reached(core), now
            if name in self._seen and self._seen[name][0] == reached and _reads(driver):
                since = self._seen[name][1]
            self._seen[name] = reached, since
            aligned = isinstance(core, TaskCore)
            of = self._behind(core) if now - since >= WAIT_MS + self._interval_ms * aligned else {}
            if of:
                seconds, what = int((now - since) / 1000), "next checkpoint" if aligned else "stream"
                last = ", ".join(f"{task} (last: {time})" for task, time in of.items())
                found[name] = f"for {seconds} s for the {what} of {last}"
                if now >= self._log_at.get(name, now):
                    self._log_at[name] = now + WAIT_MS
                    fields = {"task": name, "for": what, "of": of, "since_s": seconds}
                    logger.warning("waits for other tasks", extra=fields)
        return found

    def _behind(self, core: TaskCore | DeterministicCore) -> dict[str, str]:
        """Return the tasks that hold up this one → how far they have come, the longest behind first."""
        reached, last = _reached(core), dict[int, int]()
        for producer, come in _channels(core):
            last[producer] = min(come, last.get(producer, come))
        behind = sorted((come, producer) for producer, come in last.items() if come <= reached)
        unit = 1 if isinstance(core, TaskCore) else 1_000  # checkpoint ids are in ms, logical times in µs
        return {self._task(producer): _time(come // unit) for come, producer in behind[:NAMES_MAX]}

    def _task(self, producer: int) -> str:
        stage, partition = split_producer_id(producer)
        return f"{self._stages[stage]}-{partition}"


def _reads(driver: TaskDriver) -> bool:
    """Whether a task would go on if something came: else its sink, its sends or its end hold it up."""
    core = driver.core
    waits = core.aligned if isinstance(core, TaskCore) else not core.closing.stopping
    return waits and driver.running and not driver.mode.held_up


def _reached(core: TaskCore | DeterministicCore) -> int:
    """Return how far a task has come: its checkpoint, or the time up to which nothing is still to come in any stream.

    A task without streams to read waits for no other.
    """
    if isinstance(core, TaskCore):
        return core.idleness.closed(core.frozen)
    return core.merge.upto if core.task.channels else -1


def _channels(core: TaskCore | DeterministicCore) -> Iterator[tuple[int, int]]:
    """Yield (producer, the checkpoint or the time that it has reached) of each channel."""
    if isinstance(core, TaskCore):
        yield from ((channel.producer, channel.marker) for channel in core.inputs.channels.values())
    else:
        yield from ((channel.producer, upto(channel.bound)) for channel in core.merge.channels)


def _time(time_ms: int) -> str:
    """Return a checkpoint id or a logical time as a date: both are times of the log's clock."""
    if time_ms <= 0:
        return "none yet"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
