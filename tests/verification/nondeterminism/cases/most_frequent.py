"""The most frequent word, if two are. It is the one that comes first in the set."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class MostFrequent(Lines):
    def answer(self, record: Record[str, str]) -> str:
        words = record.value.split()
        return max(set(words), key=words.count)


job = one_stage(MostFrequent)
