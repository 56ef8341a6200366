"""A router of log lines: errors to one topic, all others to another, each once, with a count by host and level."""

from grete import BySequence, Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, utf8

PAIR = Key(utf8, utf8)  # host, and a session or a level
DAY_MS = 24 * 3_600_000
Line = tuple[str, int, str, str]  # session, number, level, text

lines = Topic("lines", key=utf8, value=json(Line))  # by host
errors = Topic("errors", key=utf8, value=utf8)
others = Topic("others", key=utf8, value=utf8)
once: BySequence[str, Line] = BySequence(
    lambda line: (line.key, line.value[0]), lambda line: line.value[1], DAY_MS, key=PAIR
)


class Route(Task):
    lines = Input(lines, deduplicate=once)
    counts = Store("counts", key=PAIR, value=int64)
    errors = Output(errors)
    others = Output(others)

    def process(self, record: Record[str, Line]) -> None:
        _, _, level, text = record.value
        self.counts.put((record.key, level), self.counts.get((record.key, level), 0) + 1)
        (self.errors if level == "error" else self.others).send(record.key, text)


job = Job("router", stages=[Route], partitions=2)
