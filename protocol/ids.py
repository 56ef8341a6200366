"""Names and numbers that several formats share."""

import re
from typing import NamedTuple

PARTITIONS_MAX = 65_536
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Render as ``topic[partition]``, the way every error names it."""
        return f"{self.topic}[{self.partition}]"


class RollbackEntry(NamedTuple):
    """One incarnation of a task: the generation and the checkpoint that it restored (R3)."""

    generation: int
    checkpoint_id: int


def producer_id(stage: int, partition: int) -> int:
    """Return stage ordinal × 65,536 + partition. Raises ValueError out of range."""
    if not (0 <= stage < 32_768 and 0 <= partition < PARTITIONS_MAX):
        raise ValueError(
            f"stage {stage}, partition {partition}: need 0 <= stage < 32768, 0 <= partition < {PARTITIONS_MAX}"
        )
    return stage * PARTITIONS_MAX + partition


def split_producer_id(producer: int) -> tuple[int, int]:
    """Return (stage ordinal, partition) of a producer id."""
    return divmod(producer, PARTITIONS_MAX)


def check_name(kind: str, name: str) -> str:
    """Return the name, or raise ValueError when it could not be a topic, a directory and a column family alike."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{kind} name {name!r} is refused: use 1 to 120 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )
    return name
