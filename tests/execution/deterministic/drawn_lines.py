"""A job that says it is deterministic and is not: its state and its outputs draw on chance."""

import os

from grete import Input, Job, Output, Record, Store, Task, Topic, utf8

RUN = os.environ.get("WORDS_RUN", "")
lines = Topic(f"drawn-lines{RUN}", key=utf8, value=utf8)
out = Topic(f"draws{RUN}", key=utf8, value=utf8)


class Draw(Task):
    lines = Input(lines)
    drawn = Store("drawn", key=utf8, value=utf8)
    out = Output(out)

    def process(self, record: Record[str, str]) -> None:
        text = self.drawn.get("all", "") + os.urandom(4).hex()
        self.drawn.put("all", text)
        self.out.send(record.value, text)


job = Job(f"drawn{RUN}", [Draw], mode="deterministic")
