"""The job that is measured: counts by key. Each record comes out at once, with the machine that has counted it."""

import os

from grete import Input, Job, Output, Record, Store, Task, Topic, utf8

RUN, MACHINE = os.environ.get("BENCH_RUN", ""), os.environ.get("BENCH_MACHINE", "")
PARTITIONS = int(os.environ.get("BENCH_PARTITIONS", "6"))
COUNT_DIGITS = 70  # of a stored count: a value of 70 bytes

events = Topic(f"bench-events-{RUN}", key=utf8, value=utf8)
counted = Topic(f"bench-counted-{RUN}", key=utf8, value=utf8)


class Count(Task):
    """Counts, and tells: ``MACHINE VALUE COUNT``."""

    events = Input(events)
    counts = Store("counts", key=utf8, value=utf8)
    out = Output(counted)

    def process(self, record: Record[str, str]) -> None:
        """Add one."""
        count = int(self.counts.get(record.key, "0")) + 1
        self.counts.put(record.key, f"{count:0{COUNT_DIGITS}}")
        self.out.send(record.key, f"{MACHINE} {record.value} {count}")


job = Job(f"bench-cluster-{RUN}", [Count], PARTITIONS)
