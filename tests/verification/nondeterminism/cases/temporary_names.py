"""The name of a temporary file. It is drawn at random."""

import tempfile

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TemporaryNames(Lines):
    def answer(self, record: Record[str, str]) -> str:
        with tempfile.NamedTemporaryFile() as file:
            return str(file.name)


job = one_stage(TemporaryNames)
