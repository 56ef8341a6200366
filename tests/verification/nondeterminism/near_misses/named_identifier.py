"""An identifier that is computed from a name. It is the same each time."""

import uuid

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class NamedIdentifier(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, record.value))


job = one_stage(NamedIdentifier)
