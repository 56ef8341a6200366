"""The module random, in an attribute of the task. Each call gives another number."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class DiceInAnAttribute(Lines):
    def init(self) -> None:
        self.dice = random

    def answer(self, record: Record[str, str]) -> str:
        return str(self.dice.random())


job = one_stage(DiceInAnAttribute)
