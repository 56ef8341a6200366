"""The hash of a text. It has a seed of the process's own, unless PYTHONHASHSEED is set."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class HashOfText(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(hash(record.value) % 1_000)


job = one_stage(HashOfText)
