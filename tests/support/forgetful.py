"""A job that takes each number once in a minute of event time, by a store with ttl_ms; and what it should have sent."""

from collections.abc import Iterable

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode

NAME = "forgetful"
PARTITIONS = 2
TTL_MS = 60_000
numbers = Topic(f"{NAME}-numbers", key=utf8, value=int64)
firsts = Topic(f"{NAME}-firsts", key=utf8, value=int64)


class Forget(Task):
    """Sends a number that was not there for TTL_MS."""

    read = Input(numbers)
    seen = Store("seen", key=int64, value=int64, ttl_ms=TTL_MS)
    out = Output(firsts)

    def process(self, record: Record[str, int]) -> None:
        if self.seen.get(record.value) is None:
            self.seen.put(record.value, record.timestamp)
            self.out.send(record.key, record.value)


class ForgetBatch(Task):
    """The same, many records at a time."""

    name = "forget"
    read = Input(numbers)
    seen = Store("seen", key=int64, value=int64, ttl_ms=TTL_MS)

    def process_batch(self, records: list[Record[str, int]]) -> None:
        self.seen.put_many((record.value, record.timestamp) for record in records)


def forgetting(mode: Mode) -> Job:
    """Return the job."""
    return Job(NAME, [Forget], partitions=PARTITIONS, mode=mode)


def expected(records: Iterable[tuple[int, int]]) -> tuple[list[int], dict[int, int]]:
    """Return the numbers that are sent for the (number, timestamp) of one partition, and those seen in the end."""
    sent, seen, now = list[int](), dict[int, int](), 0
    for number, at in records:
        if number not in seen or seen[number] + TTL_MS <= now:
            seen[number] = at
            sent.append(number)
        now = max(now, at)
    return sent, {number: at for number, at in sorted(seen.items()) if at + TTL_MS > now}


job = forgetting("aligned")
deterministic = forgetting("deterministic")
batches = Job(NAME, [ForgetBatch], partitions=PARTITIONS)
deterministic_batches = Job(NAME, [ForgetBatch], partitions=PARTITIONS, mode="deterministic")
