"""Jobs of one join of texts, and what their readers see."""

from typing import Any, NamedTuple

from grete import Input, IntervalJoin, Job, Output, Pair, Record, TableJoin, Task, Topic, json, utf8
from grete.api.stateful.joins import Join
from grete.testing import Kit

lefts = Topic("lefts", key=utf8, value=utf8)
rights = Topic("rights", key=utf8, value=utf8)
pairs_topic = Topic("pairs", key=utf8, value=json(dict[str, Any]))
late_topic = Topic("late", key=utf8, value=utf8)
marks = Topic("marks", key=utf8, value=utf8)  # moves event time, or holds it back
Text = dict[str, Any]
TEXTS: Text = {"key": utf8, "left": utf8, "right": utf8}


class Joined(NamedTuple):
    """A pair as a reader sees it, with the time of its record."""

    key: str
    left: str | None
    right: str | None
    timestamp: int


def interval(before_ms: int, after_ms: int, **others: Any) -> IntervalJoin[str, str, str]:
    """Return an interval join of texts."""
    return IntervalJoin("texts", before_ms=before_ms, after_ms=after_ms, **TEXTS, **others)


def tables(how: Any = "inner") -> TableJoin[str, str, str]:
    """Return a table join of texts."""
    return TableJoin("texts", **TEXTS, how=how)


def job_of(declared: Join[str, str, str], mode: Any = "aligned", partitions: int = 1, *, marked: bool = False) -> Job:
    """Return the job that sends the pairs of a join, and late records to a topic of their own.

    ``marked``: it has a third input, so that event time waits for that, too.
    """

    class Match(Task):
        name = "match"
        a = Input(lefts)
        b = Input(rights)
        join: Any = declared
        out = Output(pairs_topic)
        late = Output(late_topic)

        def process(self, record: Record[str, str]) -> None:
            if record.topic == marks.name:
                return
            put = self.join.put_left if record.topic == lefts.name else self.join.put_right
            if put(record.key, record.timestamp, record.value) is False:
                self.late.send(record.key, record.value)

        def on_join(self, pair: Pair[str, str, str]) -> None:
            self.out.send(pair.key, None if pair.gone else {"left": pair.left, "right": pair.right})

    if marked:
        Match.marks = Input(marks)  # type: ignore[attr-defined]  # an input more
    return Job("joins", stages=[Match], mode=mode, partitions=partitions)


def joined(kit: Kit) -> list[Joined]:
    """Return the rows that a reader sees, partition by partition, in order; one that is gone has no sides."""
    return [
        Joined(each.key or "", (each.value or {}).get("left"), (each.value or {}).get("right"), each.timestamp)
        for each in kit.outputs(pairs_topic)
    ]
