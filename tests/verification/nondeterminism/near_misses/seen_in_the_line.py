"""A set of the words seen in this line, only to look them up. It does not outlive the record."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SeenInTheLine(Lines):
    def answer(self, record: Record[str, str]) -> str:
        seen: set[str] = set()
        kept = []
        for word in record.value.split():
            if word not in seen:
                seen.add(word)
                kept.append(word)
        return " ".join(kept)


job = one_stage(SeenInTheLine)
