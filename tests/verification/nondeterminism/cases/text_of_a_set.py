"""The text of a set. Its order goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TextOfASet(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(set(record.value.split()))


job = one_stage(TextOfASet)
