"""A generator with a seed that a task makes in init. How far it is, is in no store."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class DiceOfTheInstance(Lines):
    def init(self) -> None:
        self.dice = random.Random(7)

    def answer(self, record: Record[str, str]) -> str:
        return str(self.dice.randrange(1_000_000))


job = one_stage(DiceOfTheInstance)
