"""The order of a set that a function returns. It goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.helpers import different_words
from tests.verification.nondeterminism.lines import Lines, one_stage


class SetOfAHelper(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return ",".join(different_words(record.value))


job = one_stage(SetOfAHelper)
