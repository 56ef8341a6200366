"""The machine's time zone, by way of time.mktime. The successor may run where it is another one."""

import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class LocalNoon(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(time.mktime((2026, 1, 1, 12, 0, 0, 0, 1, 0)))


job = one_stage(LocalNoon)
