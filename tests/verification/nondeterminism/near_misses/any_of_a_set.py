"""Whether any word of a set is long. The order in which they are tried does not matter."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class AnyOfASet(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(any(len(word) > 4 for word in set(record.value.split())))


job = one_stage(AnyOfASet)
