"""Members of an Enum. They are constants of the module."""

from enum import Enum

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Kind(Enum):
    SHORT = 1
    LONG = 2


class Enumeration(Lines):
    def answer(self, record: Record[str, str]) -> str:
        kind = Kind.LONG if len(record.value) > 18 else Kind.SHORT
        return f"{kind.name} {kind.value} {kind}"


job = one_stage(Enumeration)
