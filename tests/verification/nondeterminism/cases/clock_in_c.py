"""The clock of another library, behind ctypes. Each call gives another time."""

import ctypes

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ClockInC(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(ctypes.CDLL(None).clock())


job = one_stage(ClockInC)
