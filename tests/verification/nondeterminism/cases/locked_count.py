"""A count behind a lock. Threads or not, it begins again after a restart."""

import threading

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

LOCK = threading.Lock()
STATE = {"lines": 0}


class LockedCount(Lines):
    def answer(self, record: Record[str, str]) -> str:
        with LOCK:
            STATE["lines"] += 1
            return str(STATE["lines"])


job = one_stage(LockedCount)
