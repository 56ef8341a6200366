"""A generator that the record seeds. It begins again with each record."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class OwnSeed(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(random.Random(record.value).random())


job = one_stage(OwnSeed)
