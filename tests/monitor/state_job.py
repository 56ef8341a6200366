"""A job whose state has every kind of key: text, numbers, several parts, windows. Each record writes two entries."""

import os
from pathlib import Path

from grete import Input, Job, Key, Record, SessionWindow, Store, Task, Topic, TumblingWindow, Window, int64, json, utf8

lines = Topic("lines", key=utf8, value=utf8)
STORED = os.environ.get("STATE_JOB_STORED")  # a file that has each value that is stored, before it is committed


class Keep(Task):
    """Keeps each record under its key and, the same value, under the key with a number behind it."""

    lines = Input(lines)
    last = Store("last", key=utf8, value=utf8)
    pairs = Store("pairs", key=Key(utf8, int64), value=json)
    lengths = Store("lengths", key=int64, value=utf8)
    twice = Store("twice", key=utf8, value=utf8)
    minutes = TumblingWindow("minutes", 60_000, utf8, int64, grace_ms=10**12)
    sittings = SessionWindow("sittings", 30_000, utf8, int64, merge=int.__add__, grace_ms=10**12)

    def process(self, record: Record[str, str]) -> None:
        """Keep it."""
        self.last.put(record.key, record.value)
        self.pairs.put((record.key, len(record.value)), {"value": record.value})
        self.lengths.put(len(record.value), record.key)
        for end in "ab":
            self.twice.put(f"{record.key}/{end}", record.value)
        self.minutes.update(record.key, record.timestamp, _one_more)
        self.sittings.update(record.key, record.timestamp, _one_more)
        if STORED is not None:
            with Path(STORED).open("a") as file:
                file.write(f"{record.value}\n")

    def on_window(self, window: Window[str, int]) -> None:
        """Have nothing to do: none closes."""


def _one_more(count: int | None) -> int:
    return (count or 0) + 1


job = Job("state", stages=[Keep], partitions=2)
