"""The time of the module's import. A restarted worker imports it later."""

import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

STARTED = time.time_ns()


class ClockAtImport(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{record.value} since {STARTED}"


job = one_stage(ClockAtImport)
