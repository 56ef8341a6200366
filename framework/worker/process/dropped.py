"""Says in the log which records the tasks of a worker have dropped, and why."""

import logging
from collections.abc import Sequence

from grete.execution.engine.driver import TaskDriver

LEVELS = {"late": logging.WARNING, "duplicate": logging.INFO, "failed": logging.WARNING}  # by reason
LOG_MS = 60_000  # between two lines about records dropped for the same reason

logger = logging.getLogger("grete")


class DroppedLog:
    """Logs how much was dropped as late (E5), as repeats or as failed: of each once a minute, while there is more."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, float]] = {}  # by reason: records as last logged, and when more may be

    def look(self, drivers: Sequence[TaskDriver], now_ms: float) -> None:
        """Log what is due."""
        for reason, level in LEVELS.items():
            dropped = {driver.wiring.name: driver.parts.runner.dropped[reason] for driver in drivers}
            said, due_ms = self._said.get(reason, (0, 0.0))
            if sum(dropped.values()) > said and now_ms >= due_ms:
                self._said[reason] = sum(dropped.values()), now_ms + LOG_MS
                extra: dict[str, object] = {reason: {name: count for name, count in dropped.items() if count}}
                if reason == "failed":
                    lasts = {driver.wiring.name: driver.parts.runner.last_failure for driver in drivers}
                    extra["last"] = {name: last for name, last in lasts.items() if last}
                logger.log(level, "%s records dropped", reason, extra=extra)
