"""An attribute of the class. It begins again after a restart, and not at the commit."""

from typing import ClassVar

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ClassAttribute(Lines):
    count: ClassVar[int] = 0

    def answer(self, record: Record[str, str]) -> str:
        type(self).count += 1
        return str(self.count)


job = one_stage(ClassAttribute)
