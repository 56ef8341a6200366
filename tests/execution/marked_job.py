"""A job whose code leaves a trace that no crash takes back: a line of a file for each record that it processes."""

import os

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8


def lines_of(name: str) -> Topic[str, str]:
    """Return the topic of a job's lines."""
    return Topic(f"{name}-lines", key=utf8, value=utf8)


def marks_of(name: str) -> Topic[str, str]:
    """Return the topic of what its second stage makes of them."""
    return Topic(f"{name}-marks", key=utf8, value=utf8)


def marking(name: str, trace: str) -> Job:
    """Return the job, with two stages and 2 partitions; ``trace``: the file that gets a line a record and stage."""
    stream = Topic("words", key=utf8, value=utf8)

    def note(line: str) -> None:
        file = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    class Split(Task):
        """Sends a line on under another key."""

        lines = Input(lines_of(name))
        out = Output(stream)

        def process(self, record: Record[str, str]) -> None:
            note(f"split {record.value}\n")
            self.out.send(record.value, record.value)

    class Mark(Task):
        """Counts it, and shows it outside."""

        words = Input(stream)
        counts = Store("counts", key=utf8, value=int64)
        out = Output(marks_of(name))

        def process(self, record: Record[str, str]) -> None:
            note(f"mark {record.value}\n")
            self.counts.put(record.value, self.counts.get(record.value, 0) + 1)
            self.out.send(record.key, record.value)

    return Job(name, [Split, Mark], partitions=2)
