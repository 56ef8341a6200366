"""The address of an object. Another process puts it elsewhere."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Address(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(id(record.value))


job = one_stage(Address)
