"""A property that counts. It begins again after a restart, and not at the commit."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class PropertyWithState(Lines):
    def init(self) -> None:
        self.used = 0

    @property
    def number(self) -> int:
        self.used += 1
        return self.used

    def answer(self, record: Record[str, str]) -> str:
        return f"{self.number} {record.value}"


job = one_stage(PropertyWithState)
