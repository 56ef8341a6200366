"""The order of a set that a variable holds. It goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SetOfAVariable(Lines):
    def answer(self, record: Record[str, str]) -> str:
        words = {word for word in record.value.split() if len(word) > 1}
        words |= {"and", "so", "on"}
        line = ""
        for word in words:
            line += word
        return line


job = one_stage(SetOfAVariable)
