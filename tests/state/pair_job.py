"""Two stages over two partitions, a store each: small enough to be killed at every step of a run."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

observed = Topic("observed", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=int64)


class Split(Task):
    """Sends each word to where it is counted."""

    observed = Input(observed)
    lines = Store("lines", key=utf8, value=int64)
    words = Output(words)

    def process(self, record: Record[str, str]) -> None:
        """Count the line, send its words."""
        self.lines.put(record.key, self.lines.get(record.key, 0) + 1)
        for word in record.value.split():
            self.words.send(word, 1)


class Count(Task):
    """Counts words."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        """Add."""
        self.counts.put(record.key, self.counts.get(record.key, 0) + record.value)


job = Job("pair", stages=[Split, Count], partitions=2)
