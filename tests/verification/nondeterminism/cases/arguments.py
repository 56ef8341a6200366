"""The arguments of the process. Another supervisor may give others."""

import sys

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Arguments(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(sys.argv[1:])


job = one_stage(Arguments)
