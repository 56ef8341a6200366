"""A list that the module fills when it is imported. It is the same after each restart."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

SQUARES: list[int] = []
for number in range(1_000):
    SQUARES.append(number * number)


class ModuleTable(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(SQUARES[len(record.value)])


job = one_stage(ModuleTable)
