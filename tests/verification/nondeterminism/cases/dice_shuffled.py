"""A shuffled list. Each call gives another order."""

from random import shuffle

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class DiceShuffled(Lines):
    def answer(self, record: Record[str, str]) -> str:
        letters = list(record.value * 3)
        shuffle(letters)
        return "".join(letters)


job = one_stage(DiceShuffled)
