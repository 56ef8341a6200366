"""A list sorted by the addresses of its elements. Another process puts them elsewhere."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SortedByAddress(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(sorted(record.value.split(), key=id))


job = one_stage(SortedByAddress)
