"""An object of the task with a count of its own. It begins again after a restart."""

from grete import Record
from tests.verification.nondeterminism.helpers import Numbering
from tests.verification.nondeterminism.lines import Lines, one_stage


class HelperOfTheTask(Lines):
    def init(self) -> None:
        self.numbering = Numbering()

    def answer(self, record: Record[str, str]) -> str:
        return self.numbering.numbered(record.value)


job = one_stage(HelperOfTheTask)
