"""A job of two stages over two partitions, and one that may be added: what tests change of a job's graph."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

given = Topic("changing-given", key=utf8, value=utf8)
passed = Topic("passed", key=utf8, value=utf8)


class First(Task):
    """Passes on."""

    lines = Input(given)
    out = Output(passed)

    def process(self, record: Record[str, str]) -> None:
        """Send the record on."""
        self.out.send(record.key, record.value)


class Second(Task):
    """Counts."""

    words = Input(passed)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        """Count the value."""
        self.counts.put(record.value, (self.counts.get(record.value) or 0) + 1)


class Third(Task):
    """Counts, too: the stage that is added."""

    seen = Input(passed)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        """Count the value."""
        self.counts.put(record.value, (self.counts.get(record.value) or 0) + 1)


job = Job("changing", stages=[First, Second], partitions=2)
