"""A heap that the call makes. It does not outlive the record."""

import heapq

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class HeapOfTheCall(Lines):
    def answer(self, record: Record[str, str]) -> str:
        heap: list[tuple[int, str]] = []
        for word in record.value.split():
            heapq.heappush(heap, (len(word), word))
        return " ".join(heapq.heappop(heap)[1] for _ in range(len(heap)))


job = one_stage(HeapOfTheCall)
