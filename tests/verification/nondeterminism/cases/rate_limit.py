"""The number of lines in the last second of the machine's clock. The second time they come at once."""

import time
from collections import deque

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class RateLimit(Lines):
    def init(self) -> None:
        self.times: deque[float] = deque()

    def answer(self, record: Record[str, str]) -> str:
        now = time.monotonic()
        self.times.append(now)
        while self.times and self.times[0] < now - 1:
            self.times.popleft()
        return str(len(self.times))


job = one_stage(RateLimit)
