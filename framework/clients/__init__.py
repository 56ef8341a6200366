"""For programs outside of a job: writing to its topics, reading its outputs and its state."""

from grete.clients.async_client import AsyncClient
from grete.clients.client import Client
from grete.clients.source import ExternalSource, SourceRecord
from grete.clients.writer import Writer

__all__ = ["AsyncClient", "Client", "ExternalSource", "SourceRecord", "Writer"]
