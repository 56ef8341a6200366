"""The line before, in an attribute of the task. After a restart there is none."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class LastLine(Lines):
    def init(self) -> None:
        self.last = ""

    def answer(self, record: Record[str, str]) -> str:
        before, self.last = self.last, record.value
        return before


job = one_stage(LastLine)
