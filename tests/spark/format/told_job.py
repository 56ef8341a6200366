"""Two stages with a stream between them; each count is told outside."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

observed = Topic("observed", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=int64)
totals = Topic("totals", key=utf8, value=int64)


class Split(Task):
    """Sends each word to where it is counted."""

    observed = Input(observed)
    words = Output(words)

    def process(self, record: Record[str, str]) -> None:
        """Send the words."""
        for word in record.value.split():
            self.words.send(word, 1)


class Count(Task):
    """Counts words, and tells each count."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    totals = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        """Add."""
        count = self.counts.get(record.key, 0) + record.value
        self.counts.put(record.key, count)
        self.totals.send(record.key, count)


job = Job("told", stages=[Split, Count], partitions=2)
