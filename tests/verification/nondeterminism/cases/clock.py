"""The clock. Each call gives another time."""

import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Clock(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(time.time())


job = one_stage(Clock)
