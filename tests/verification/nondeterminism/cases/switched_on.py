"""A switch that one line turns on for all after it. After a restart it is off."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SwitchedOn(Lines):
    def init(self) -> None:
        self.loud = False

    def answer(self, record: Record[str, str]) -> str:
        if "question" in record.value:
            self.loud = True
        return record.value.upper() if self.loud else record.value


job = one_stage(SwitchedOn)
