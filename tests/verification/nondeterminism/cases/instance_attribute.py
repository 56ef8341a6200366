"""An attribute of the task. It begins again after a restart, and not at the commit."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class InstanceAttribute(Lines):
    def init(self) -> None:
        self.count = 0

    def answer(self, record: Record[str, str]) -> str:
        self.count += 1
        return str(self.count)


job = one_stage(InstanceAttribute)
