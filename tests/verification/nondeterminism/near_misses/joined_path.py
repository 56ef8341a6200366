"""A function of os that asks no system. It computes a text."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class JoinedPath(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return os.path.join(record.key, record.value)


job = one_stage(JoinedPath)
