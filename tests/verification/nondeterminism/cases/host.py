"""The name of the machine. The successor may run on another one."""

import platform

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Host(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return platform.node()


job = one_stage(Host)
