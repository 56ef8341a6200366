"""A sum of whole numbers over a set. They add up alike in every order."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class CountOverASet(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(sum(len(word) for word in set(record.value.split())))


job = one_stage(CountOverASet)
