"""A list sorted by length. Words of one length stay in the order of the line."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SortedByLength(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(sorted(record.value.split(), key=len))


job = one_stage(SortedByLength)
