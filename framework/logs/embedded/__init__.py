"""The embedded log: one SQLite file a job, written and read by all of its processes on one machine."""

from framework.logs.embedded.log import EmbeddedLog
from framework.logs.embedded.reader import EmbeddedReader

__all__ = ["EmbeddedLog", "EmbeddedReader"]
