"""Words of a line that are in a set of the module. Membership does not go by the order."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

STOPS = frozenset({"to", "be", "or", "not"})


class WordsOfASet(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(word for word in record.value.split() if word in STOPS)


job = one_stage(WordsOfASet)
