"""Logs the start and the end of a worker, whatever logging configuration the job's code has set.

A job's module configures logging as any program does. What a supervisor reads, to know why a worker has ended, is not
for it to switch off; all other lines of Grete are.
"""

import logging
from typing import Any

_SAID = "_said"  # set on a line that the handler has written

OURS = "grete"  # the loggers of Grete; those of user code and of libraries have other names


class OwnHandler(logging.StreamHandler[Any]):
    """The handler of Grete's own lines in a worker's process. What it gets twice it writes once."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if not hasattr(record, _SAID):
            super().emit(record)
            setattr(record, _SAID, True)


class OwnLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines go to the OwnHandler of the process, if it has one, and then where the logger sends them."""

    own: OwnHandler | None = None  # of this process

    def log(self, level: int, msg: object, *_: object, exc_info: Any = None, extra: Any = None, **__: Any) -> None:
        """Log a line."""
        logger = self.logger
        if isinstance(exc_info, BaseException):
            exc_info = type(exc_info), exc_info, exc_info.__traceback__
        record = logger.makeRecord(logger.name, level, "", 0, msg, (), exc_info, extra=extra)
        if OwnLogger.own is not None:
            OwnLogger.own.handle(record)
        if logger.isEnabledFor(level):
            logger.handle(record)


def set_own(handler: OwnHandler) -> None:
    """Let Grete's lines go to this handler alone, whatever becomes of the handlers of the root."""
    OwnLogger.own = handler
    ours = logging.getLogger(OURS)
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(logging.INFO)


def enable_own() -> None:
    """Switch Grete's loggers on again after the job's module was loaded: by default a configuration disables all.

    One that names a logger of Grete's has it as it says.
    """
    for name, logger in list(logging.root.manager.loggerDict.items()):  # a thread of the job may add some meanwhile
        if name.partition(".")[0] == OURS and isinstance(logger, logging.Logger):
            logger.disabled = False


def own_logger() -> OwnLogger:
    """Return the logger of such lines."""
    return OwnLogger(logging.getLogger(OURS))
