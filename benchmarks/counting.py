"""The jobs that are measured on Kafka. The environment says which job it is, and names the topics of a run.

Counting: JSON messages by key, each count written out at once. Keeping: the newest value of a key, to come back with.
"""

import os
from collections.abc import Sequence

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, bytes_serde, int64, json, utf8

RUN = os.environ.get("BENCH_RUN", "0")
PARTITIONS = 4


def events_topic(messages: int) -> str:
    """Return the name of the topic with that many events, which all runs share."""
    return f"bench-events-{messages}"


EVENTS = events_topic(int(os.environ.get("BENCH_MESSAGES", "0")))


class Event(msgspec.Struct):
    """An input message, about 95 bytes of JSON."""

    id: int
    key: str
    amount: int
    note: str


class Counted(msgspec.Struct):
    """An output message."""

    key: str
    count: int


events = Topic(EVENTS, key=utf8, value=json(Event))
counted = Topic(f"bench-counted-{RUN}", key=utf8, value=json(Counted))


class Count(Task):
    """Counts by key, a record at a time, as the README does."""

    events = Input(events)
    counts = Store("counts", key=utf8, value=int64)
    counted = Output(counted)

    def process(self, record: Record[str, Event]) -> None:
        """Count one more, and tell."""
        key = record.value.key
        count = self.counts.get(key, 0) + 1
        self.counts.put(key, count)
        self.counted.send(key, Counted(key, count))


class CountBatches(Task):
    """The same, many records at a time."""

    name = "count"
    events = Input(events)
    counts = Store("counts", key=utf8, value=int64)
    counted = Output(counted)

    def process_batch(self, records: Sequence[Record[str, Event]]) -> None:
        """Count each of them, and tell; each key is read and written once."""
        counts: dict[str, int] = {}
        send = self.counted.send
        for record in records:
            key = record.value.key
            count = counts.get(key)
            if count is None:
                count = self.counts.get(key, 0)
            counts[key] = count = count + 1
            send(key, Counted(key, count))
        for key, count in counts.items():
            self.counts.put(key, count)


class Keep(Task):
    """Keeps the newest value of each key, and tells of those that ask for it."""

    values = Input(Topic(f"bench-values-{RUN}", key=bytes_serde, value=bytes_serde))
    kept = Store("kept", key=bytes_serde, value=bytes_serde)
    told = Output(Topic(f"bench-told-{RUN}", key=bytes_serde, value=bytes_serde))

    def process(self, record: Record[bytes, bytes]) -> None:
        """Put; tell what was there before if the record has a header."""
        if record.headers:
            self.told.send(record.key, self.kept.get(record.key) or b"")
        self.kept.put(record.key, record.value)


counting = Job(f"bench-count-{RUN}", stages=[Count], partitions=PARTITIONS)
deterministic = Job(f"bench-count-{RUN}", stages=[Count], partitions=PARTITIONS, mode="deterministic")
counting_batches = Job(f"bench-count-{RUN}", stages=[CountBatches], partitions=PARTITIONS)
keeping = Job(f"bench-keep-{RUN}", stages=[Keep])
JOBS = {"process": counting, "process_batch": counting_batches, "deterministic": deterministic, "keep": keeping}
job = JOBS[os.environ.get("BENCH_JOB", "process")]
