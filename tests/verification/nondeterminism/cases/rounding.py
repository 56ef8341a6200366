"""The context of decimal. What one record sets counts for those after it, until the process ends."""

import decimal

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Rounding(Lines):
    def answer(self, record: Record[str, str]) -> str:
        decimal.getcontext().prec += 1
        return str(decimal.Decimal(1) / 3)


job = one_stage(Rounding)
