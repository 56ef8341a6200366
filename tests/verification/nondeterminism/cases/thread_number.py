"""The number of a thread. Another process gives another one."""

import threading

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ThreadNumber(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(threading.get_ident())


job = one_stage(ThreadNumber)
