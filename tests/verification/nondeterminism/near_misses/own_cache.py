"""A cache of a pure function, made by hand. What it holds, the function would return again."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class OwnCache(Lines):
    def init(self) -> None:
        self.known: dict[str, str] = {}

    def answer(self, record: Record[str, str]) -> str:
        line = record.value
        if line not in self.known:
            self.known[line] = line.upper()
        return self.known[line]


job = one_stage(OwnCache)
