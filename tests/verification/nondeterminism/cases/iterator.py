"""An iterator of the module. It begins again after a restart, and not at the commit."""

from itertools import count

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

NUMBERS = count(1)


class Iterator(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{next(NUMBERS)} {record.value}"


job = one_stage(Iterator)
