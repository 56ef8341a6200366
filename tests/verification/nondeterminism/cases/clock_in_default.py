"""A default argument. It is evaluated when the process defines the function."""

import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def stamped(line: str, at: int = time.time_ns()) -> str:
    return f"{line} {at}"


class ClockInDefault(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return stamped(record.value)


job = one_stage(ClockInDefault)
