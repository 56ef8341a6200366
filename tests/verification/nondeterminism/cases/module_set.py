"""A set of the module that says which lines were seen. It begins empty after a restart."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

SEEN: set[str] = set()


class ModuleSet(Lines):
    def answer(self, record: Record[str, str]) -> str:
        if record.key in SEEN:
            return "again"
        SEEN.add(record.key)
        return "first"


job = one_stage(ModuleSet)
