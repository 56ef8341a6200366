"""A dict of the module. It begins empty after a restart, and not at the commit."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

COUNTS: dict[str, int] = {}


class ModuleDict(Lines):
    def answer(self, record: Record[str, str]) -> str:
        COUNTS[record.key] = COUNTS.get(record.key, 0) + 1
        return str(COUNTS[record.key])


job = one_stage(ModuleDict)
