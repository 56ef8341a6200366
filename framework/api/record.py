"""The record that ``process`` gets."""

from typing import Generic, TypeVar

import msgspec

K_co = TypeVar("K_co", covariant=True)  # a method that takes more, such as a value that may be None, takes these
V_co = TypeVar("V_co", covariant=True)

Headers = tuple[tuple[str, bytes | None], ...]  # names may repeat; a value may be null


class Record(msgspec.Struct, Generic[K_co, V_co], frozen=True, gc=False):
    """One record of an input, decoded. A null key or value is None, whatever the serde (Kafka's tombstone)."""

    key: K_co
    value: V_co
    timestamp: int  # ms since 1970, set by the producer of the job's first topic; children inherit it
    headers: Headers
    topic: str  # as declared in Topic
    partition: int  # of the topic, or of the internal stream
    offset: int  # of the message that carries it: records of an internal stream share one
