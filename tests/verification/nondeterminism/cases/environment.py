"""A variable of the environment. The successor may be started with another value."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Environment(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return os.environ.get("CORPUS_LIFE", "")


job = one_stage(Environment)
