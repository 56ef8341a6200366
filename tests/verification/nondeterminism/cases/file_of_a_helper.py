"""A file, read by a function of another module. It may have changed when it is read again."""

from grete import Record
from tests.verification.nondeterminism.helpers import first_line
from tests.verification.nondeterminism.lines import Lines, one_stage


class FileOfAHelper(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return first_line("/proc/self/stat")


job = one_stage(FileOfAHelper)
