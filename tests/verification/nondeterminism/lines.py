"""The job of each case: one stage, lines in, one output a line. A case only says what it makes of a line."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

LINES = Topic("lines", key=utf8, value=utf8)
ANSWERS = Topic("answers", key=utf8, value=utf8)


class Lines(Task):
    lines = Input(LINES)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(ANSWERS)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, self.answer(record))

    def answer(self, record: Record[str, str]) -> str:
        raise NotImplementedError


def one_stage(task: type[Task]) -> Job:
    """Return the job of a case."""
    return Job("case", [task], mode="deterministic")
