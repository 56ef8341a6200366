"""A file that the task itself writes. It survives the rollback of the records."""

import os
from pathlib import Path

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class FileWritten(Lines):
    def answer(self, record: Record[str, str]) -> str:
        path = Path(os.environ["CORPUS_DIRECTORY"], "lines.txt")
        with path.open("a") as file:
            file.write(record.value + "\n")
            return str(file.tell())


job = one_stage(FileWritten)
