"""The output of a command. It may be another when it runs again."""

import subprocess

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Command(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return subprocess.run(["cat", "/proc/uptime"], capture_output=True, text=True, check=True).stdout


job = one_stage(Command)
