"""The last three lines, in a deque of the task. After a restart there is none."""

from collections import deque

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class LastLines(Lines):
    def init(self) -> None:
        self.last: deque[str] = deque(maxlen=3)

    def answer(self, record: Record[str, str]) -> str:
        self.last.append(record.value)
        return " ".join(self.last)


job = one_stage(LastLines)
