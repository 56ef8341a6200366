"""A list of the module. It begins empty after a restart, and not at the commit."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

SEEN: list[str] = []


class ModuleList(Lines):
    def answer(self, record: Record[str, str]) -> str:
        SEEN.append(record.value)
        return str(len(SEEN))


job = one_stage(ModuleList)
