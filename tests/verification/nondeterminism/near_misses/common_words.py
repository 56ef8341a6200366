"""Words that two sets have in common, sorted. Sorting forgets the set's order."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

KNOWN = frozenset({"to", "be", "question"})


class CommonWords(Lines):
    def answer(self, record: Record[str, str]) -> str:
        common = KNOWN & set(record.value.split())
        return ",".join(sorted(common)) if common else "none"


job = one_stage(CommonWords)
