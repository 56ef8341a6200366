"""A job of two stages for the tests of backfills: numbers in text are added up by key; what is no number goes aside."""

from grete import DeadLetter, Input, Job, Output, Record, Store, Task, Topic, int64, utf8

events = Topic("events", key=utf8, value=utf8)
numbers = Topic("numbers", key=utf8, value=int64)
letters = Topic("letters", key=utf8, value=utf8)
told = Topic("told", key=utf8, value=int64)


class Parse(Task):
    """Text → number, by the first letter of the key; counts what it has seen of each key."""

    source = Input(events, errors=DeadLetter(letters))
    seen = Store("seen", key=utf8, value=int64)
    out = Output(numbers)

    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
        self.out.send(record.key[-1:], int(record.value))


class Sum(Task):
    """Adds up."""

    source = Input(numbers)
    sums = Store("sums", key=utf8, value=int64)
    out = Output(told)

    def process(self, record: Record[str, int]) -> None:
        total = self.sums.get(record.key, 0) + record.value
        self.sums.put(record.key, total)
        self.out.send(record.key, total)


job = Job("sums", stages=[Parse, Sum], partitions=2)
