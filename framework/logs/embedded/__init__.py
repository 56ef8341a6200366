"""The embedded log: one SQLite file a job, written and read by all of its processes on one machine."""

from grete.logs.embedded.log import EmbeddedLog
from grete.logs.embedded.reader import EmbeddedReader

__all__ = ["EmbeddedLog", "EmbeddedReader"]
