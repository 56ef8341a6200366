"""The clock, in a function with some of its arguments. Each call gives another time."""

import time
from functools import partial

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def stamp(prefix: str, line: str) -> str:
    return f"{prefix} {time.time_ns()} {line}"


stamped = partial(stamp, "at")


class PartialClock(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return stamped(record.value)


job = one_stage(PartialClock)
