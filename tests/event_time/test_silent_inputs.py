"""Inputs by which event time does not go: tables beside a stream (E1)."""

from typing import Any

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, int64, utf8
from grete.api.mode import Mode
from grete.errors import GraphError
from grete.testing import Kit

MINUTE = 60_000
DAY = 1_440 * MINUTE
VIEWS = Topic("views", key=utf8, value=int64)
NAMES = Topic("names", key=utf8, value=utf8)
COUNTED = Topic("counted", key=utf8, value=int64)


class Count(Task):
    """Counts views by the hour, beside a table of names."""

    views = Input(VIEWS)
    names = Input(NAMES, bootstrap=True, time="none")
    named = Store("name", key=utf8, value=utf8)
    hours = TumblingWindow("hours", 60 * MINUTE, key=utf8, value=int64)
    out = Output(COUNTED)

    def process(self, record: Record[str, Any]) -> None:
        if record.topic == "names":
            self.named.put(record.key, record.value)
        elif not self.hours.update(record.key, record.timestamp, lambda n: (n or 0) + 1):
            self.out.send("late", 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("pause_ms", [1_000, 20_000])
def test_a_pause_of_the_stream_lets_no_table_set_the_time(mode: Mode, pause_ms: int) -> None:
    """The stream is a month behind, the table is of today: nothing is late, however long the stream pauses."""
    kit = Kit(Job("count", stages=[Count], mode=mode))
    kit.feed(NAMES, "home", "Home")
    start = (kit.now_ms - 30 * DAY) // DAY * DAY
    for minute in range(0, 240, 10):
        if minute == 120:
            kit.advance(pause_ms)
            kit.feed(NAMES, "home", "House")
        kit.feed(VIEWS, "home", 1, timestamp=start + minute * MINUTE)
    kit.run(crashes=3, seed=1)
    assert kit.pairs(COUNTED) == [("home", 6)] * 3
    kit.drain()
    assert kit.pairs(COUNTED) == [("home", 6)] * 4


def test_an_input_must_tell_the_time() -> None:
    """Else event time would never move on, and no window would close."""

    class Blind(Count):
        views = Input(VIEWS, time="none")

    with pytest.raises(GraphError, match="event time would never move on"):
        Job("count", stages=[Blind])
