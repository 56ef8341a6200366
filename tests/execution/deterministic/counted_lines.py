"""A deterministic source that is a sink: each output says what the state must hold."""

import os

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

RUN = os.environ.get("WORDS_RUN", "")
lines = Topic(f"counted-lines{RUN}", key=utf8, value=utf8)
out = Topic(f"line-counts{RUN}", key=utf8, value=utf8)


class Count(Task):
    lines = Input(lines)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(out)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        self.out.send(record.value, str(count))


job = Job(f"counted{RUN}", [Count], mode="deterministic")
