"""The duration of a record, in a list that only the log sees. No output depends on it."""

import logging
import time

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

logger = logging.getLogger("corpus")


class Metrics(Lines):
    def init(self) -> None:
        self.took: list[float] = []

    def answer(self, record: Record[str, str]) -> str:
        began = time.perf_counter()
        line = record.value.upper()
        self.took.append(time.perf_counter() - began)
        logger.debug("%s", self.took[-1])
        return line


job = one_stage(Metrics)
