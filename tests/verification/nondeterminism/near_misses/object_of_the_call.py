"""An object with a count that each call makes for itself. It does not outlive the record."""

from grete import Record
from tests.verification.nondeterminism.helpers import Numbering
from tests.verification.nondeterminism.lines import Lines, one_stage


class ObjectOfTheCall(Lines):
    def answer(self, record: Record[str, str]) -> str:
        numbering = Numbering()
        return " ".join(numbering.numbered(word) for word in record.value.split())


job = one_stage(ObjectOfTheCall)
