"""Any element of a set. Which one goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SetPop(Lines):
    def answer(self, record: Record[str, str]) -> str:
        words = set(record.value.split())
        return words.pop()


job = one_stage(SetPop)
