"""A count in a base class of the task. It begins again after a restart."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Numbered(Lines):
    last = 0

    def following(self) -> int:
        self.last = self.last + 1
        return self.last


class BaseClassWithState(Numbered):
    def answer(self, record: Record[str, str]) -> str:
        return f"{self.following()} {record.value}"


job = one_stage(BaseClassWithState)
