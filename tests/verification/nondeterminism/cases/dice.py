"""Random numbers of the process. Each call gives another one."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Dice(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(random.random())


job = one_stage(Dice)
