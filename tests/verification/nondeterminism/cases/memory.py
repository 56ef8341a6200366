"""The memory that the process has used. It grows, and begins again after a restart."""

import resource

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Memory(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(resource.getrusage(resource.RUSAGE_SELF).ru_utime)


job = one_stage(Memory)
