"""A compiled pattern of the module. Matching leaves nothing behind."""

import re

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

WORD = re.compile(r"\w+")


class Pattern(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(WORD.findall(record.value))


job = one_stage(Pattern)
