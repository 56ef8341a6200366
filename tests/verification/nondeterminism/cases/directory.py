"""The current directory. The successor may be started in another one."""

from pathlib import Path

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Directory(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(Path.cwd())


job = one_stage(Directory)
