"""A file. It may have changed when it is read again."""

from pathlib import Path

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class File(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return Path("/proc/uptime").read_text()


job = one_stage(File)
