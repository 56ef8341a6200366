"""The order of a set of the module. It goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

STOPS = frozenset({"to", "be", "or", "not", "that", "is", "in"})


class NamesOfASet(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(word for word in STOPS if word in record.value)


job = one_stage(NamesOfASet)
