"""The clock, in a function of another module of the project. Each call gives another time."""

from grete import Record
from tests.verification.nondeterminism.helpers import stamp
from tests.verification.nondeterminism.lines import Lines, one_stage


class ClockInHelper(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return stamp(record.value)


job = one_stage(ClockInHelper)
