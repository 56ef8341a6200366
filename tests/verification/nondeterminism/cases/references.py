"""The number of references to an object. It depends on what else the process holds."""

import sys

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class References(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(sys.getrefcount(record.key) + sys.getrefcount(None))


job = one_stage(References)
