"""A new identifier. Each call gives another one."""

from uuid import uuid4

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Identifiers(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(uuid4())


job = one_stage(Identifiers)
