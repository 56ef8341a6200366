"""JSON of a dict that is made from a sorted set. Nothing of the set's order is left."""

import json

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SortedKeys(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return json.dumps({word: len(word) for word in sorted(set(record.value.split()))}, sort_keys=True)


job = one_stage(SortedKeys)
