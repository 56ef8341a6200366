"""A count that only the log sees. No output and no state holds it."""

import logging

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

logger = logging.getLogger("corpus")


class LoggedCount(Lines):
    def init(self) -> None:
        self.count = 0

    def answer(self, record: Record[str, str]) -> str:
        self.count += 1
        logger.debug("%s lines", self.count)
        return record.value


job = one_stage(LoggedCount)
