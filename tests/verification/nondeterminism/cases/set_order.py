"""The order of a set. It goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SetOrder(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(set(record.value.split()))


job = one_stage(SetOrder)
