"""The most frequent words by a Counter. Those of one count are in the order of the line."""

from collections import Counter

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Ranked(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(Counter(record.value.split()).most_common(2))


job = one_stage(Ranked)
