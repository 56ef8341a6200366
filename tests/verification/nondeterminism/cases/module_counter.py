"""A global variable. It begins again after a restart, and not at the commit."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

count = 0


class ModuleCounter(Lines):
    def answer(self, record: Record[str, str]) -> str:
        global count
        count += 1
        return str(count)


job = one_stage(ModuleCounter)
