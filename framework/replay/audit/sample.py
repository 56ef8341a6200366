"""Sampling of keys for an audit, by a hash: a key stays drawn as long as the job keeps its name."""

import zlib

from grete.execution.timing.reserved_stores import TIMERS
from grete.state.write.moving.record_keys import key_of_entry


class Sample:
    """The keys of a share of all. The name of the job is the seed: two jobs do not leave out the same keys."""

    def __init__(self, job: str, share: float) -> None:
        """``share``: above 0, at most 1."""
        self.share = share
        self._seed = zlib.crc32(job.encode())
        self._below = share * (1 << 32)

    @property
    def draws(self) -> bool:
        """Whether some keys are left out."""
        return self.share < 1

    def has(self, key: bytes | None) -> bool:
        """Tell whether a record's key is drawn; None is a key as others are."""
        return zlib.crc32(key or b"", self._seed) < self._below

    def has_entry(self, store: int, key: bytes) -> bool:
        """Tell whether an entry belongs to a drawn key, if its store is keyed as the records are."""
        return self.has(key_of_entry(store, key) if store == TIMERS else key)
