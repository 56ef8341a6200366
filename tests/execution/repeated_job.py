"""A job whose input repeats and reorders: it counts each number of each session once, by id or by sequence.

What is no number is dropped.
"""

from grete import ById, BySequence, Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.api.topics.deduplicate import Deduplicate

NAME = "repeated"
HORIZON_MS = 3_600_000
numbers = Topic(f"{NAME}-numbers", key=utf8, value=int64)
counts = Topic(f"{NAME}-counts", key=utf8, value=int64)


def counting(kind: str, mode: Mode) -> Job:
    """Return the job: the session is the record's key, its value the number."""
    how: Deduplicate[str, int]
    if kind == "id":
        how = ById(lambda record: f"{record.key}/{record.value}", HORIZON_MS)
    else:
        how = BySequence(lambda record: record.key, lambda record: record.value, HORIZON_MS)

    class Count(Task):
        read = Input(numbers, errors="drop", deduplicate=how)
        sums = Store("sums", key=utf8, value=int64)
        out = Output(counts)

        def process(self, record: Record[str, int]) -> None:
            total = self.sums.get(record.key, 0) + record.value
            self.sums.put(record.key, total)
            self.out.send(record.key, record.value)

    return Job(NAME, [Count], partitions=2, mode=mode)
