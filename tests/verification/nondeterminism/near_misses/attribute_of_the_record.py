"""An attribute that each record sets before it is read. Nothing outlives the record."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class AttributeOfTheRecord(Lines):
    def process(self, record: Record[str, str]) -> None:
        self.line = record.value
        self.out.send(record.key, self.upper())

    def upper(self) -> str:
        return self.line.upper()


job = one_stage(AttributeOfTheRecord)
