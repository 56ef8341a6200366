"""Lines that are dropped are counted, and the log says how many. No output holds the count."""

import logging

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

logger = logging.getLogger("corpus")


class DroppedAndLogged(Lines):
    def init(self) -> None:
        self.dropped = 0

    def answer(self, record: Record[str, str]) -> str:
        if len(record.value) > 20:
            self.dropped += 1
            if self.dropped % 100 == 1:
                logger.info("%s lines dropped", self.dropped)
            return "dropped"
        return record.value


job = one_stage(DroppedAndLogged)
