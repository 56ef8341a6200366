"""Names like those of builtins. Here they are the task's own."""

import zlib

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class OwnNames(Lines):
    def open(self, line: str) -> str:
        return line.upper()

    def hash(self, line: str) -> int:
        return zlib.crc32(line.encode())

    def answer(self, record: Record[str, str]) -> str:
        id = record.key
        return f"{id} {self.open(record.value)} {self.hash(record.value)}"


job = one_stage(OwnNames)
