"""A buffer that is sent when it is full. What is in it at a crash is lost, and the successor begins empty."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class BatchOfLines(Lines):
    def init(self) -> None:
        self.buffer: list[str] = []

    def answer(self, record: Record[str, str]) -> str:
        self.buffer.append(record.value)
        if len(self.buffer) < 3:
            return "waiting"
        sent = "|".join(self.buffer)
        self.buffer = []
        return sent


job = one_stage(BatchOfLines)
