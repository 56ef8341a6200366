"""Random bytes of the system. Each call gives others."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class RandomBytes(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return os.urandom(8).hex()


job = one_stage(RandomBytes)
