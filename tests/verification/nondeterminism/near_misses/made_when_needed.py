"""A pattern that a task compiles when it is needed. It is the same whenever it is made."""

import re

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class MadeWhenNeeded(Lines):
    def init(self) -> None:
        self.pattern: re.Pattern[str] | None = None

    def answer(self, record: Record[str, str]) -> str:
        if self.pattern is None:
            self.pattern = re.compile(r"[aeiou]")
        return self.pattern.sub("*", record.value)


job = one_stage(MadeWhenNeeded)
