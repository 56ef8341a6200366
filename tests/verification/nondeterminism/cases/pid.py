"""The number of the process. The successor has another one."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Pid(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(os.getpid())


job = one_stage(Pid)
