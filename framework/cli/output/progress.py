"""Progress on a terminal as bars, elsewhere as a line now and then."""

import math
import time
from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from grete.api.jobs.job import Job
from grete.state.read.shown import printable

PLAIN_S = 5.0  # seconds between two lines where there is no terminal
DROPPED_S = 60.0  # between two lines about records dropped for the same reason
WAITS_S = 60.0  # between two lines about a task that waits for others


DROPPED = {
    "late": (
        "records dropped, too late for their windows or joins: {count:,} ({parts}): "
        "raise their grace_ms, or event_time_idle_ms (docs/explanation/event-time.md)"
    ),
    "duplicate": "duplicates dropped: {count:,} ({parts}): see deduplicate= (docs/guides/duplicates.md)",
    "failed": 'dropped, because processing failed: {count:,} ({parts}): see errors="drop" (docs/guides/bad-records.md)',
}


class Screen:
    """Bars by name. What is printed through ``say`` scrolls above them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        text, more = TextColumn("{task.description:<16}"), TextColumn("{task.fields[more]}")
        columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), more)
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._bars: dict[str, TaskID] = {}
        self._values: dict[str, str] = {}
        self._dropped: dict[str, tuple[dict[str, int], float]] = {}  # by reason: records of each task, as said when
        self._waits_s: dict[str, float] = {}  # task that waits for others → when that was last said
        self._troubled: set[str] = set()  # tasks whose sink did not answer when last looked at
        self._said_s = time.monotonic()

    def bar(self, name: str, done: int, total: int, more: str = "") -> None:
        """Show how far something is; ``more``: what a person should know beside the numbers."""
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=total, more=more)
        self._progress.update(self._bars[name], completed=done, total=total, more=more)
        self._values[name] = f"{name} {done:,} of {total:,}" + (f" ({more})" if more else "")
        if not self.console.is_terminal and time.monotonic() - self._said_s >= PLAIN_S:
            self._said_s = time.monotonic()
            self.say(", ".join(self._values.values()))

    def restores(self, restores: Mapping[str, tuple[int, int]]) -> None:
        """Show a bar for each task that is being restored: how many messages it has read, of how many."""
        for task, (done, total) in restores.items():
            self.bar(f"restoring {task}", done, total)
        names = {f"restoring {task}" for task in restores}
        for name in [name for name in self._bars if name.startswith("restoring ") and name not in names]:
            self._progress.remove_task(self._bars.pop(name))
            del self._values[name]

    def troubles(self, troubles: Mapping[str, str]) -> None:
        """Say what keeps a task from its sink when that begins and when it is over: it is tried again and again."""
        for task in troubles.keys() - self._troubled:
            self.say(f"{task} waits for its sink: {troubles[task]}")
        for task in self._troubled - troubles.keys():
            self.say(f"{task}: its sink answers again")
        self._troubled = set(troubles)

    def waits(self, waits: Mapping[str, str]) -> None:
        """Say what tasks wait for, of each once a minute; and when that is over."""
        now = time.monotonic()
        for task in self._waits_s.keys() - waits.keys():
            self.say(f"{task} waits no longer")
            del self._waits_s[task]
        for task, text in waits.items():
            if now - self._waits_s.get(task, -math.inf) >= WAITS_S:
                self._waits_s[task] = now
                self.say(f"{task} waits {text}")

    def dropped(
        self, dropped: Mapping[str, Mapping[str, int]], failures: Mapping[str, str], *, finally_: bool = False
    ) -> None:
        """Say by reason how much each task has dropped: at once, then once a minute while there is more.

        ``failures``: task → the error of what it last dropped as failed, which is said behind its number.
        """
        for reason, by_task in dropped.items():
            if self._say_dropped(reason, by_task, finally_=finally_) and reason == "failed":
                for error in failures.values():
                    self.say(f"  the last one: {error}")

    def _say_dropped(self, reason: str, dropped: Mapping[str, int], *, finally_: bool) -> bool:
        """Return whether it was said."""
        now = time.monotonic()
        said, said_s = self._dropped.get(reason, ({}, -math.inf))
        news = any(count > said.get(task, 0) for task, count in dropped.items())
        if not (news and now - said_s >= DROPPED_S) and not (finally_ and any(dropped.values())):
            return False
        self._dropped[reason] = dict(dropped), now
        parts = ", ".join(f"{task}: {count:,}" for task, count in sorted(dropped.items()) if count)
        self.say(DROPPED[reason].format(count=sum(dropped.values()), parts=parts))
        return True

    def say(self, text: str) -> None:
        """Print a line as it is, but for what could steer a terminal."""
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and leave the bars on the screen."""
        self._progress.stop()


def counted(count: int, noun: str) -> str:
    """Return the count with its noun: "1 record", "2,000 records"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def of_stages(job: Job) -> str:
    """Return the number of a job's stages in words, if it is more than one."""
    return f" of {len(job.stages)} stages" if len(job.stages) > 1 else ""
