"""what lies behind the end of a partition, because a producer has a transaction open."""

from typing import NamedTuple


class OpenTransaction(NamedTuple):
    """Messages that no reader sees yet: from ``offset`` to ``end``, blocked by an open transaction.

    ``timestamp_ms``, ``key``: of the first one, which is in that transaction; None: they could not be read.
    """

    offset: int
    end: int
    timestamp_ms: int | None
    key: bytes | None
