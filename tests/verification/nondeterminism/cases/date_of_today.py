"""The date and time of the machine. Each call gives another time."""

from datetime import datetime

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class DateOfToday(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return datetime.now().isoformat()


job = one_stage(DateOfToday)
