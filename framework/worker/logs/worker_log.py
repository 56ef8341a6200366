"""The log lines of a worker: one JSON object each, on standard error, with the job, the partition and the task."""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from grete.execution.engine.driver import TaskDriver
from grete.execution.records.trace_context import CURRENT
from grete.execution.records.user_traceback import bare_traceback
from grete.log_events import event_of
from grete.quoting import shows_values
from grete.worker.logs.own_lines import OURS, OwnHandler, set_own

CLIENT = "grete.kafka"  # logs what all tasks share


class LogContext(logging.Filter):
    """Adds id, job and partition to each line of a worker's process, and stage and generation to that of a task.

    A process of several partitions has the number of its worker in each line, and a partition in that of a task.

    A line about a record that has a trace context gets the ids of its trace and span.

    ``task`` returns the task that a line is about, None if it is about all of them.
    """

    def __init__(self, partitions: Sequence[int], worker: int) -> None:
        super().__init__()
        self.job: str | None = None  # until its code is loaded
        self._worker = {"partition": partitions[0]} if len(partitions) == 1 else {"worker": worker}
        self.task: Callable[[], TaskDriver | None] = lambda: None

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what is known, unless the line says it itself; let the line pass."""
        ours = event_of(str(record.msg)) if record.name.partition(".")[0] == OURS else None
        known: dict[str, object] = {"id": ours and ours.name, "job": self.job, **self._worker}
        task = None if record.name == CLIENT else self.task()
        if task is not None:
            wiring = task.wiring
            known |= {"stage": wiring.stage, "partition": wiring.changelog.partition}
            known["generation"] = task.core.generation
        traced = CURRENT.logged
        if traced is not None:
            known |= {"trace_id": f"{traced.trace_id:032x}", "span_id": f"{traced.span_id:016x}"}
        for name, value in known.items():
            if value is not None and not hasattr(record, name):
                setattr(record, name, value)
        return True


class _Lines(JsonFormatter):
    """Lines of JSON, with an error's text where that is shown."""

    def formatException(self, ei: Any) -> Any:  # noqa: N802  # of logging
        """Return a traceback."""
        whole = shows_values() or ei[1] is None
        return super().formatException(ei) if whole else bare_traceback(ei[1])


def configure_logs(partitions: Sequence[int], worker: int) -> LogContext:
    """Let this process, worker number ``worker``, log to standard error; return what says whose its lines are.

    The lines of user code and of libraries have a handler of their own, which user code may replace.
    """
    own, others, whose = OwnHandler(sys.stderr), logging.StreamHandler(sys.stderr), LogContext(partitions, worker)
    names = {"levelname": "level", "message": "event"}
    for handler in (own, others):
        handler.setFormatter(_Lines("%(levelname)s %(message)s", rename_fields=names, timestamp=True))
        handler.addFilter(whose)
    logging.basicConfig(level=logging.INFO, handlers=[others], force=True)
    set_own(own)
    logging.getLogger("grete.definition").handlers.clear()  # its lines are among the others
    return whose
