"""A bucket by the hash of a text. It has a seed of the process's own."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

BUCKETS = 16


def bucket(*parts: str) -> str:
    return f"bucket {hash(parts) % BUCKETS}"


class GroupByHash(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return bucket(record.key, record.value)


job = one_stage(GroupByHash)
