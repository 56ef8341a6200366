"""Random numbers for test data, in a function that no task calls. They reach no output."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def sample_data() -> list[str]:
    return [str(random.random()) for _ in range(10)]


class UnusedDice(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return record.value


job = one_stage(UnusedDice)
