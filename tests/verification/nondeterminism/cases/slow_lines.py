"""The duration of a computation. It takes longer on a busy machine."""

import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SlowLines(Lines):
    def answer(self, record: Record[str, str]) -> str:
        began = time.perf_counter()
        total = sum(number * number for number in range(2_000))
        return "slow" if time.perf_counter() - began > 0.25 else str(total)


job = one_stage(SlowLines)
