"""Counts words: the smallest job. Sentences in, for each of their words its new total out."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

sentences = Topic("sentences", key=utf8, value=utf8)  # declared once, shared by both ends
totals = Topic("word-totals", key=utf8, value=int64)


class CountWords(Task):
    """Keeps a number for each word."""

    lines = Input(sentences)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            n = self.counts.get(word, 0) + 1
            self.counts.put(word, n)
            self.out.send(word, n)


job = Job("word-count", stages=[CountWords])
