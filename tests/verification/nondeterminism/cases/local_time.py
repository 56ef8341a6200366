"""The machine's time zone. The successor may run where it is another one."""

from datetime import datetime

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class LocalTime(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return datetime.fromtimestamp(record.timestamp // 86_400_000 * 86_400).isoformat()


job = one_stage(LocalTime)
