"""For programs outside of a job: writing to its topics."""

from framework.client.writer import Writer

__all__ = ["Writer"]
