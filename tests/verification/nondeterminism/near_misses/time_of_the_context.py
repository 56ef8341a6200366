"""Time and chance from self.ctx. They are functions of the input log."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TimeOfTheContext(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{self.ctx.now()} {self.ctx.random().random()} {self.ctx.uuid()}"


job = one_stage(TimeOfTheContext)
