"""An object of the module that counts how often it is called. It begins again after a restart."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Numbers:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count


NUMBER = Numbers()


class CallableObject(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{NUMBER()} {record.value}"


job = one_stage(CallableObject)
