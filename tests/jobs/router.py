"""A router of log lines: errors to one topic, all others to another, each once, with a count by host and level."""

from typing import Any

from grete import BySequence, Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, utf8

lines = Topic("lines", key=utf8, value=json)  # by host: session, number, level, text
errors = Topic("errors", key=utf8, value=utf8)
others = Topic("others", key=utf8, value=utf8)


class Route(Task):
    lines = Input(
        lines,
        deduplicate=BySequence(
            lambda record: (record.key, record.value["session"]),
            lambda record: int(record.value["number"]),
            24 * 3_600_000,
            key=Key(utf8, utf8),
        ),
    )
    counts = Store("counts", key=Key(utf8, utf8), value=int64)
    errors = Output(errors)
    others = Output(others)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        level, text = record.value["level"], record.value["text"]
        self.counts.put((record.key, level), self.counts.get((record.key, level), 0) + 1)
        (self.errors if level == "error" else self.others).send(record.key, text)


job = Job("router", stages=[Route], partitions=2)
