"""Words of a set in the order of the alphabet. Sorting forgets the set's order."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SortedSet(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(sorted(set(record.value.split())))


job = one_stage(SortedSet)
