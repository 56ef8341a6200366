"""An exact sum of floats over a set. math.fsum does not depend on the order."""

import math

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ExactSum(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(math.fsum(len(word) / 7 for word in set(record.value.split())))


job = one_stage(ExactSum)
