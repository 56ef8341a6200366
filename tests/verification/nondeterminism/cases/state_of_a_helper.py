"""A list of another module of the project. It begins empty after a restart."""

from grete import Record
from tests.verification.nondeterminism.helpers import remembered
from tests.verification.nondeterminism.lines import Lines, one_stage


class StateOfAHelper(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(remembered(record.value))


job = one_stage(StateOfAHelper)
