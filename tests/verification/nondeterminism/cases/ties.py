"""Words of the same length, sorted by length. They keep the order of the set."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Ties(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(sorted(set(record.value.split()), key=len))


job = one_stage(Ties)
