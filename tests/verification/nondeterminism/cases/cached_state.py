"""A cache of what a store holds. After a restart the store is read again, and has gone on."""

from functools import lru_cache

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class CachedState(Lines):
    @lru_cache  # noqa: B019  # the mistake
    def before(self, key: str) -> int:
        return self.counts.get(key, 0)

    def answer(self, record: Record[str, str]) -> str:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
        return str(self.before(record.key))


job = one_stage(CachedState)
