"""An object of the module with a count of its own. It begins again after a restart."""

from grete import Record
from tests.verification.nondeterminism.helpers import Numbering
from tests.verification.nondeterminism.lines import Lines, one_stage

NUMBERING = Numbering()


class HelperObject(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return NUMBERING.numbered(record.value)


job = one_stage(HelperObject)
