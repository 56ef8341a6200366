"""For programs outside of a job: writing to its topics, reading its outputs and its state."""

from framework.client.client import Client
from framework.client.source import ExternalSource, SourceRecord
from framework.client.writer import Writer

__all__ = ["Client", "ExternalSource", "SourceRecord", "Writer"]
