"""Jobs of one window, whose values are the texts of their records, and what their readers see."""

from datetime import datetime
from typing import Any, NamedTuple

from grete import CalendarWindow, Input, Job, Output, Record, Task, Topic, Window, json, utf8
from grete import HoppingWindow as Hopping
from grete import SessionWindow as Session
from grete import SlidingWindow as Sliding
from grete import TumblingWindow as Tumbling
from grete.api.stateful.calendar_window import zone_of
from grete.api.stateful.windows import WindowStore
from grete.testing import Kit

__all__ = [
    "CalendarWindow",
    "Hopping",
    "Result",
    "Session",
    "Sliding",
    "Tumbling",
    "job_of",
    "marks",
    "results",
    "texts",
]

HOUR = 3_600_000  # ms
lines = Topic("lines", key=utf8, value=utf8)
marks = Topic("marks", key=utf8, value=utf8)
results_topic = Topic("results", key=utf8, value=json(dict[str, Any]))
late_topic = Topic("late", key=utf8, value=utf8)
Text = dict[str, Any]
TEXTS: Text = {"key": utf8, "value": json(list[str])}


def ms(zone: str, year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    """Return a local time in ms since 1970."""
    return int(datetime(year, month, day, hour, minute, tzinfo=zone_of(zone)).timestamp()) * 1_000


class Result(NamedTuple):
    """A result as a reader sees it; ``end`` is behind the window's last ms."""

    key: str
    start: int
    end: int
    value: str
    final: bool = True
    replaces: tuple[int, ...] = ()


def texts() -> Text:
    """Return the serdes of a window of texts."""
    return TEXTS


def job_of(window: WindowStore[str, list[str]], mode: Any = "aligned", *, marked: bool = False) -> Job:
    """Return the job that appends the texts of a window's records, and sends late records to a topic of their own.

    ``marked``: it reads the topic ``marks``, too, whose records do nothing but move event time.
    """

    class Append(Task):
        name = "append"
        source = Input(lines)
        windowed = window
        out = Output(results_topic)
        late = Output(late_topic)

        def process(self, record: Record[str, str]) -> None:
            if not self.windowed.update(record.key, record.timestamp, lambda seen: [*(seen or ()), record.value]):
                self.late.send(record.key, record.value)

        def on_window(self, window: Window[str, list[str]]) -> None:
            value = {
                "start": window.start,
                "end": window.end,
                "value": "+".join(window.value),
                "final": window.final,
                "replaces": list(window.replaces),
            }
            self.out.send(window.key, value)

    class Marked(Append):
        marks = Input(marks)

        def process(self, record: Record[str, str]) -> None:
            if record.topic != marks.name:
                super().process(record)

    return Job("windows", stages=[Marked if marked else Append], mode=mode)


def results(kit: Kit) -> list[Result]:
    """Return the results that a reader sees, partition by partition, in order."""
    return [
        Result(key or "", v["start"], v["end"], v["value"], v["final"], tuple(v["replaces"]))
        for key, v in kit.pairs(results_topic)
    ]
