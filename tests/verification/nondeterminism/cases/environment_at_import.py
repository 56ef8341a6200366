"""A variable of the environment, read at import. The successor may be started with another value."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

SUFFIX = os.getenv("CORPUS_LIFE", "")


class EnvironmentAtImport(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return SUFFIX + record.value


job = one_stage(EnvironmentAtImport)
