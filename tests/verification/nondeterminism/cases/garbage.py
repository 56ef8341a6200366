"""The time of a garbage collection. It depends on all that the process has allocated."""

import gc

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Garbage(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(gc.get_count()[0])


job = one_stage(Garbage)
