"""The number of cores. The successor may run on another machine."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Cores(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(os.cpu_count())


job = one_stage(Cores)
