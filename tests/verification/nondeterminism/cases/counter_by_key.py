"""A Counter of the class. It begins empty after a restart, and not at the commit."""

from collections import Counter
from typing import ClassVar

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class CounterByKey(Lines):
    words: ClassVar[Counter[str]] = Counter()

    def answer(self, record: Record[str, str]) -> str:
        self.words.update(record.value.split())
        return str(self.words.most_common(3))


job = one_stage(CounterByKey)
