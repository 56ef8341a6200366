"""A cache whose entries expire by the clock. The second time another one is expired."""

import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ExpiringCache(Lines):
    def init(self) -> None:
        self.known: dict[str, tuple[float, int]] = {}

    def answer(self, record: Record[str, str]) -> str:
        at, number = self.known.get(record.key, (0.0, 0))
        if time.time() - at > 0.001:
            self.known[record.key] = time.time(), record.offset
            return f"fresh {record.offset}"
        return f"known {number}"


job = one_stage(ExpiringCache)
