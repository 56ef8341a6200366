"""The job of two stages that is measured, as a user's file: route by value, count by key."""

from pathlib import Path

JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

ROUTED = Topic("routed", key=utf8, value=utf8)


class Route(Task):
    clicks = Input(Topic("{given}", key=utf8, value=utf8, partitions={partitions}))
    out = Output(ROUTED)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, record.key)


class Count(Task):
    clicks = Input(ROUTED)
    seen = Store("seen", key=utf8, value=int64)
    out = Output(Topic("{counted}", key=utf8, value=int64))

    def process(self, record: Record[str, str]) -> None:
        count = self.seen.get(record.key, 0) + 1
        self.seen.put(record.key, count)
        self.out.send(record.key, count)


job = Job("{name}", stages=[Route, Count], partitions={tasks}, mode="{mode}")
"""


def written(folder: Path, name: str, topics: tuple[str, str], partitions: int, tasks: int, mode: str) -> Path:
    """Write the job of this name from the first topic to the second, with ``tasks`` a stage; return its file."""
    path = folder / "wide_job.py"
    given, counted = topics
    names = {"name": name, "given": given, "counted": counted, "mode": mode}
    path.write_text(JOB.format(**names, partitions=partitions, tasks=tasks))
    return path
