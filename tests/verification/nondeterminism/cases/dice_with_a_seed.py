"""A generator with a seed, for the life of the process. How far it is, is in no store."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

DICE = random.Random(7)


class DiceWithASeed(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(DICE.random())


job = one_stage(DiceWithASeed)
