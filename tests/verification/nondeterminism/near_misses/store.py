"""A count in a store. It is back at the commit after a restart."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Store(Lines):
    def answer(self, record: Record[str, str]) -> str:
        count = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, count)
        return str(count)


job = one_stage(Store)
