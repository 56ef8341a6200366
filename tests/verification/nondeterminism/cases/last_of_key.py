"""The last line of a key, in a dict of the task. It begins empty after a restart."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class LastOfKey(Lines):
    def init(self) -> None:
        self.last: dict[str, str] = {}

    def answer(self, record: Record[str, str]) -> str:
        before = self.last.get(record.key, "")
        self.last[record.key] = record.value
        return before


job = one_stage(LastOfKey)
