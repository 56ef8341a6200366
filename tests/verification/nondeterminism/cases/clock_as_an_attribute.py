"""The clock, called through an attribute of the class. Each call gives another time."""

import time
from collections.abc import Callable
from typing import ClassVar

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ClockAsAnAttribute(Lines):
    clock: ClassVar[Callable[[], int]] = time.time_ns

    def answer(self, record: Record[str, str]) -> str:
        return str(type(self).clock())


job = one_stage(ClockAsAnAttribute)
