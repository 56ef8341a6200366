"""A job that runs on this machine: feeding its inputs, watching its workers, showing progress."""

import os
import select
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from grete.api.jobs.job import Job
from grete.api.serdes.serde import utf8
from grete.api.topics.topic import Topic
from grete.cli.job_target import JobTarget, options_for
from grete.cli.output.progress import Screen, counted
from grete.errors import ConfigError, LogAway
from grete.execution.deterministic.determinism_lint import findings
from grete.feeds.folder import FolderFeed, ScanReport
from grete.feeds.listing import name_of
from grete.job.directory import directory_of
from grete.worker.supervisor.local_job import LocalJob

RESCAN_S = 0.5  # --follow looks at the folder this often
MARGIN_S = 2.0  # what waits for the log gives up by itself
LOOK_S = 0.5  # where others write, the ends are looked at this often: on Kafka a round trip for each partition
LOOK_S_MAX = 5.0  # where the log takes its time: an end that moved is seen no later than that
LOOKS = 200  # times what a look took, up to LOOK_S_MAX: looks at many partitions cost little of the time
POLL_MS = 100  # of waiting between two looks at the input, and at what tasks print; what workers say ends the wait
LINE_MS = 10  # of waiting for a line, which ends the wait; what workers say does not


class Feeding:
    """The feeds of a run: a folder, lines, both or none. ``step`` feeds a little: workers must be watched meanwhile."""

    def __init__(
        self, local: LocalJob, folder: FolderFeed | None, lines: Mapping[Iterator[int], int], *, follow: bool
    ) -> None:
        """``lines``: feed → the handle that it reads."""
        self.folder = folder
        self.fed: list[ScanReport] = []  # finished scans that appended something
        self.scans = 0
        self._local = local
        self._lines = dict(lines)
        self._follow = follow
        self._scan = None if folder is None else folder.scan()
        self._next_scan_s = 0.0
        self._end_moved = True
        self._next_look_s = 0.0
        self._ends = local.ends()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do just now."""
        return not self._lines and self._scan is None

    def step(self) -> None:
        """Append the next batch, if there is one."""
        for lines in list(self._lines):
            if next(lines, None) is None:
                del self._lines[lines]
            self._end_moved = True
        if self._scan is not None and next(self._scan, None) is None:
            assert self.folder is not None
            self.scans += 1
            self._scan, self._next_scan_s = None, time.monotonic() + RESCAN_S
            if self.folder.report.fed or self.scans == 1:
                self.fed.append(self.folder.report)
                self._end_moved = True
        elif self._scan is not None:
            self._end_moved = True
        elif self._follow and self.folder is not None and time.monotonic() >= self._next_scan_s:
            self._scan = self.folder.scan()

    def wait(self) -> None:
        """Wait for a line, if nothing else is fed: a person types, or the writer of a pipe thinks."""
        if self._lines and self._scan is None:
            select.select([*self._lines.values()], [], [], LINE_MS / 1000)

    def ends(self) -> dict[Any, int]:
        """Return the ends of the external inputs, as of now, or where others may write, of half a second ago."""
        now_s = time.monotonic()
        if self._end_moved or (not self.folder and now_s >= self._next_look_s):
            self._ends, self._end_moved = self._local.ends(), not self.idle
            took_s = time.monotonic() - now_s
            self._next_look_s = now_s + took_s + min(max(LOOK_S, LOOKS * took_s), LOOK_S_MAX)
        return self._ends


def step(local: LocalJob, feeding: Feeding, screen: Screen) -> None:
    """Feed a little, watch the workers, show progress."""
    try:
        feeding.step()
    except LogAway:
        if not local.patience.ended:
            raise
    feeding.wait()
    local.poll(0 if not feeding.idle else POLL_MS)
    show(local, feeding, screen)


def show(local: LocalJob, feeding: Feeding, screen: Screen) -> None:
    """Update the bars, report crashes, and show what the tasks print."""
    tell(local, screen)
    reports = local.reports
    screen.troubles(reports.troubles)
    screen.waits(reports.waits)
    screen.dropped(reports.dropped, reports.failures)
    screen.restores(reports.restores)
    if feeding.folder is not None:
        report = feeding.folder.report
        if report.planned:
            screen.bar("read", report.done, report.planned)
    out = f"{counted(reports.released, 'output')} out already" if reports.released else ""
    screen.bar("processed", *local.records_through(feeding.ends()), out)


def warn(job: Job, screen: Screen) -> None:
    """Say which lines of the job's code may not be deterministic where they must be."""
    for stage, finding in findings(job):
        screen.say(
            f"{stage} must be deterministic, and may not be: {finding.module}, line {finding.line}: {finding.what}; "
            f"instead: {finding.instead}"
        )


def tell(local: LocalJob, screen: Screen) -> None:
    """Show what the tasks have printed, and which workers ended."""
    for line in (*local.supervisor.printed(), *local.supervisor.news):
        screen.say(line)
    local.supervisor.news.clear()


def tell_timers(local: LocalJob, screen: Screen, more: str = "") -> None:
    """Say how many timers wait, if any do; ``more``: about those of event time."""
    if count := local.waiting_timers():
        screen.say(f"waiting for a later record: {counted(count, 'timer')}, of Timers(), windows and joins{more}")
    if count := local.waiting_wall_timers():
        screen.say(f"waiting for the clock: {counted(count, 'wall-clock timer')}; run the job at that time or later")


def folder_topic(job: Job) -> Topic[Any, Any]:
    """Return the topic that a folder goes into: the job's one external input, text by text. Raises ConfigError."""
    topics = external_inputs(job)
    if len(topics) != 1:
        raise ConfigError(
            f"job {job.name!r} reads {len(topics)} topics ({', '.join(topics) or 'none'}): --input-dir needs one: name "
            "the topic by --input TOPIC=FILE"
        )
    (topic,) = topics.values()
    if (topic.key, topic.value) != (utf8, utf8):
        raise ConfigError(
            f"topic {topic.name!r} is {topic.key.name} → {topic.value.name}: --input-dir gives utf8 → utf8, name → text"
        )
    return topic


def external_inputs(job: Job) -> dict[str, Topic[Any, Any]]:
    """Return name → topic of what the job reads from outside."""
    names = {name for stage in job.stages for name in job.topology().externals_of(stage.ordinal)}
    return {topic.name: topic for stage in job.stages for topic in stage.topics_read() if topic.name in names}


class OpenLines(NamedTuple):
    """An input of lines. ``path``: of a regular file, which can be read again."""

    topic: Topic[Any, Any]
    handle: int
    path: str | None


def open_lines(topic: Topic[Any, Any], source: str, said: str) -> OpenLines:
    """Open a file of lines, or take standard input (-). The handle stays open. ``said``: how it was named.

    Raises ConfigError: it cannot be read.
    """
    if source == "-":
        if sys.stdin is None:
            raise ConfigError(f"{said}: standard input is closed: pipe the lines in, or name a file")
        return OpenLines(topic, 0, None)
    try:
        handle = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "there is no input"
        raise ConfigError(f"{said}: {why}: name a file that this user may read, or - for standard input") from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{said}: {source} is a folder: name a file, or feed its files by grete run --input-dir")
    return OpenLines(topic, handle, name_of(os.fsencode(os.path.realpath(source))) if stat.S_ISREG(mode) else None)


def options_of(found: JobTarget) -> str:
    """Return the options with which a command finds the same job again."""
    address, directory = found.job_directory.address, found.job_directory.directory
    return options_for(address, None if directory == directory_of(found.job, None, address) else directory)


def described(report: ScanReport) -> str:
    """Return the result of a scan in words: every file is in one of the counts."""
    names = ("new", "changed", "deleted", "touched", "unchanged")
    parts = [f"{report.counts[name]:,} {name}" for name in names if report.counts[name]] or ["no files"]
    parts += [f"{count:,} {reason}" for reason, count in sorted(report.skipped.items())]
    return ", ".join(parts)
