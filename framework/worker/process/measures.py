"""The measures of a task and of its worker, for their reports: metrics and pages are made of them."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from grete.execution.engine.driver import TaskDriver
from grete.execution.records.key_samples import KeySamples
from grete.protocol.report import Blocked, EarlyBytes, InputPosition, TaskMeasures, WorkerMeasures
from grete.stores.overlay.expiring_store import BEFORE_ALL
from grete.stores.rocksdb.memory_use import RocksMemory

SIZES_MS = 10_000  # between two looks at the files of the stores


def task_measures(driver: TaskDriver) -> TaskMeasures:
    """Return the numbers of a task that metrics show."""
    parts, core, counters = driver.parts, driver.core, driver.parts.counters
    runner, times = parts.runner, parts.commit_times
    done, end = driver.restore.progress
    now = parts.io.overlay.event_time
    return TaskMeasures(
        records_in=runner.counts["in"],
        records_out=runner.counts["out"],
        dead_letters=runner.counts["dead letters"],
        released=counters["released records"],
        commits=counters["commits"],
        commit_counts=tuple(times.counts),
        commit_sum_s=times.sum_s,
        commit_steps_s={step.name.lower(): seconds for step, seconds in times.by_step_s.items()},
        changelog_bytes=counters["changelog bytes"],
        restored=counters["restored records"],
        restore_left=max(0, end - done) if not driver.running else 0,
        uncommitted_bytes=parts.io.overlay.open_bytes,
        unacknowledged_bytes=parts.sends.pending.bytes,
        held_bytes=runner.external_bytes,
        early_bytes=EarlyBytes(*core.inputs.waiting_bytes),
        sink_bytes=0 if parts.runner.outbox is None else parts.runner.outbox.waiting_bytes,
        held_up=driver.mode.held_up,
        held_by=parts.sends.held_by if driver.mode.held_up else None,
        sent_to=dict(runner.sent_to),
        streams=tuple(_streams(driver)) if driver.running else (),
        event_time_ms=None if now == BEFORE_ALL else now,
    )


def _streams(driver: TaskDriver) -> Iterator[InputPosition]:
    for at in {partition for _, partition in driver.wiring.channels}:
        yield InputPosition(at.topic, at.partition, driver.core.inputs.processed_offset(at))


class WorkerMeter:
    """Measures one worker process: how busy its loop is, and how much room its stores take."""

    def __init__(self, memory: RocksMemory, directories: Callable[[], list[Path]]) -> None:
        """``directories``: those of the state stores, one for each task that is here."""
        self.waited_ms = 0.0  # by the loop, for the log or for time to pass
        self.calls_blocked: Blocked | None = None  # in what the loop of the calls is held up
        self.keys = KeySamples()
        self._memory, self._directories = memory, directories
        self._begun_s = time.monotonic()
        self._disk_bytes, self._looked_ms = 0, float("-inf")

    @property
    def busy_s(self) -> float:
        """Return the seconds in which the loop did not wait. Any thread may ask."""
        return max(0.0, time.monotonic() - self._begun_s - self.waited_ms / 1_000)

    def measure(self, now_ms: float, log_trouble: str | None) -> WorkerMeasures:
        """Return the numbers as of ``now_ms``."""
        if now_ms - self._looked_ms >= SIZES_MS:
            self._looked_ms = now_ms
            self._disk_bytes = sum(_size(each) for each in self._directories())
        return WorkerMeasures(
            busy_s=self.busy_s,
            rocksdb_memory_bytes=self._memory.used(),
            state_disk_bytes=self._disk_bytes,
            log_trouble=log_trouble,
            blocked=self.calls_blocked,
            hot=self.keys.hottest(),
        )


def _size(directory: Path) -> int:
    """Return the bytes of the files below a directory; one that RocksDB deletes meanwhile counts as none."""
    size, below = 0, [str(directory)]
    while below:
        with suppress(OSError), os.scandir(below.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    else:
                        size += entry.stat().st_size
    return size
