"""A dict of the module that no record changes. It is the same after each restart."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

PRICES = {"a": "1.20", "b": "0.80"}


class ModuleConstant(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return PRICES.get(record.key, "unknown")


job = one_stage(ModuleConstant)
