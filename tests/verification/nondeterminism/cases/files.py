"""The files of a directory. Others may be there later, in any order."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Files(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return "".join(name for name in os.listdir("/proc/self/task"))


job = one_stage(Files)
