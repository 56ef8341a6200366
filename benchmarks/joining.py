"""The jobs whose joins are measured on Kafka: two topics joined by key, each pair told by the numbers of its records.

The environment says which kind of join a run has, and names its topics.
"""

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.counting import PARTITIONS
from grete import Input, IntervalJoin, Job, Output, Pair, Record, TableJoin, Task, Topic, VersionedStore, utf8

RUN = os.environ.get("BENCH_RUN", "0")
KIND = os.environ.get("BENCH_JOIN", "inner")
STARTED = os.environ.get("BENCH_STARTED", "")  # the file of when each process made its first pair, in ms since 1970
BEFORE_MS = AFTER_MS = 10_000
RETENTION_MS = 600_000
DIGITS = 8  # of the number that a value begins with
NONE = "-"
INTERVALS = ("inner", "left", "outer")
HOW: Any = KIND if KIND in INTERVALS else "inner"
SERDES: Any = {"key": utf8, "left": utf8, "right": utf8}


def input_topics(messages: int) -> tuple[str, str]:
    """Return the names of the topics of both sides with that many messages together, which all runs share."""
    return f"bench-joined-{messages}-left", f"bench-joined-{messages}-right"


LEFT, RIGHT = input_topics(int(os.environ.get("BENCH_MESSAGES", "0")))
lefts, rights = (Topic(name, key=utf8, value=utf8) for name in (LEFT, RIGHT))
joined = Topic(f"bench-joins-{RUN}", key=utf8, value=utf8)


def told(left: str | None, right: str | None) -> str:
    """Return the text of a pair."""
    return f"{NONE if left is None else left[:DIGITS]}:{NONE if right is None else right[:DIGITS]}"


class Joins(Task):
    """Tells each pair."""

    lefts, rights, out = Input(lefts), Input(rights), Output(joined)
    name = "join"
    begun = False

    def tell(self, key: str, left: str | None, right: str | None) -> None:
        """Send one pair; note when the first one is sent."""
        if not self.begun:
            self.begun = True
            with Path(STARTED).open("a", encoding="ascii") as file:
                file.write(f"{time.time() * 1000:.0f}\n")
        self.out.send(key, told(left, right))


class Interval(Joins):
    """Both sides are streams."""

    both = IntervalJoin("both", before_ms=BEFORE_MS, after_ms=AFTER_MS, how=HOW, **SERDES)

    def process(self, record: Record[str, str]) -> None:
        """Join one more."""
        put = self.both.put_left if record.topic == LEFT else self.both.put_right
        put(record.key, record.timestamp, record.value)

    def on_join(self, pair: Pair[str, str, str]) -> None:
        """Tell."""
        self.tell(pair.key, pair.left, pair.right)


class AsOf(Joins):
    """The right side is a table, whose row as of the left record's time counts."""

    rows = VersionedStore("rows", key=utf8, value=utf8, retention_ms=RETENTION_MS)

    def process(self, record: Record[str, str]) -> None:
        """Keep a row, or tell of a record that has one."""
        if record.topic == RIGHT:
            self.rows.put(record.key, record.timestamp, record.value)
        elif (row := self.rows.get(record.key, record.timestamp)) is not None:
            self.tell(record.key, record.value, row)


class Tables(Joins):
    """Both sides are tables."""

    both = TableJoin("both", **SERDES)

    def process(self, record: Record[str, str]) -> None:
        """Change a row."""
        put = self.both.put_left if record.topic == LEFT else self.both.put_right
        put(record.key, record.timestamp, record.value)

    def on_join(self, pair: Pair[str, str, str]) -> None:
        """Tell."""
        self.tell(pair.key, pair.left, pair.right)


TASKS: dict[str, type[Joins]] = {**dict.fromkeys(INTERVALS, Interval), "as of": AsOf, "tables": Tables}
job = Job(f"bench-joins-{RUN}", stages=[TASKS[KIND]], partitions=PARTITIONS)
