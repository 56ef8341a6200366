"""The release of Python. An upgrade changes it."""

import sys

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class PythonRelease(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return sys.version


job = one_stage(PythonRelease)
