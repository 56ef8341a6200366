"""A job with one of everything that Kafka asks permission for: source, stream, changelogs, sink, dead letters."""

from grete import DeadLetter, Input, Job, Output, Record, Store, Task, Topic, int64, utf8

sentences = Topic("guarded-sentences", key=utf8, value=utf8)
rejected = Topic("guarded-rejected", key=utf8, value=utf8)
words = Topic("guarded-words", key=utf8, value=utf8)
totals = Topic("guarded-totals", key=utf8, value=int64)


class Split(Task):
    """Sends the words of each sentence on, and refuses an empty one."""

    lines = Input(sentences, errors=DeadLetter(rejected))
    words = Output(words)

    def process(self, record: Record[str, str]) -> None:
        if not record.value:
            raise ValueError("an empty sentence")
        for word in record.value.split():
            self.words.send(word, word)


class Count(Task):
    """Keeps a number for each word."""

    read = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.value, 0) + 1
        self.counts.put(record.value, n)
        self.out.send(record.value, n)


class Forward(Task):
    """Sends on what is read, and writes nothing outside of the job."""

    lines = Input(sentences)
    words = Output(words)

    def process(self, record: Record[str, str]) -> None:
        self.words.send(record.key, record.value)


job = Job("guarded", stages=[Split, Count])
