"""A clock that only the log sees. No output and no state holds it."""

import logging
import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

logger = logging.getLogger("corpus")


class LoggedTimes(Lines):
    def answer(self, record: Record[str, str]) -> str:
        logger.debug("line at %s", time.time())
        return record.value


job = one_stage(LoggedTimes)
