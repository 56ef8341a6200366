"""A clock that begins with the machine or the process. Each call gives another time."""

from time import perf_counter as tick

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ClockOfTheProcess(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{tick():.6f}"


job = one_stage(ClockOfTheProcess)
