"""Random bytes of the system. Each call gives others."""

import secrets

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Tokens(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return secrets.token_hex(8)


job = one_stage(Tokens)
