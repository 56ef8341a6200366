"""The size of a batch from outside. The input decisions in the log record it, so a successor cuts them alike."""

from collections.abc import Sequence

from grete import Input, Output, Record, Task
from tests.verification.nondeterminism.lines import ANSWERS, LINES, one_stage


class Batches(Task):
    lines = Input(LINES)
    out = Output(ANSWERS)

    def process_batch(self, records: Sequence[Record[str, str]]) -> None:
        for record in records:
            self.out.send(record.key, f"{record.value} of {len(records)}")


job = one_stage(Batches)
