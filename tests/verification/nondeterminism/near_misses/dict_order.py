"""The order of a dict. It is that of the insertions."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class DictOrder(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(dict.fromkeys(record.value.split()))


job = one_stage(DictOrder)
