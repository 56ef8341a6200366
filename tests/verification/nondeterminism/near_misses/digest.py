"""A digest of the text. It has no seed."""

import hashlib

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Digest(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return hashlib.sha256(record.value.encode()).hexdigest()[:12]


job = one_stage(Digest)
