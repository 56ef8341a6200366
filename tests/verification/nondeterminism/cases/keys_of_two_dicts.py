"""The common keys of two dicts. Operators of their keys make sets."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class KeysOfTwoDicts(Lines):
    def answer(self, record: Record[str, str]) -> str:
        words = dict.fromkeys(record.value.split(), 1)
        return " ".join(words.keys() - {"to"})


job = one_stage(KeysOfTwoDicts)
