"""The job that is measured: two stages as the README writes them, with process, Store and serdes."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=int64)
totals = Topic("totals", key=utf8, value=int64)


class Split(Task):
    """A line becomes its words."""

    lines = Input(lines)
    words = Output(words)

    def process(self, record: Record[str, str]) -> None:
        """Send each word once for each time that it occurs."""
        for word in record.value.split():
            self.words.send(word, 1)


class Count(Task):
    """Totals by word, in a store; each change goes out."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    totals = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        """Add and tell."""
        total = self.counts.get(record.key, 0) + record.value
        self.counts.put(record.key, total)
        self.totals.send(record.key, total)


job = Job("bench", stages=[Split, Count], partitions=1)
