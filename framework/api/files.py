"""Files as a sink: each version's outputs of a task become one file, exactly once (S2)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from framework.api.serdes import Serde

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Files(Generic[V]):
    """A directory that receives ``part-{stage}-{partition}-{version}.jsonl``, one encoded value per line.

    The name of the file is the key of its application: applied again, it is the same file. So a value's bytes must hold no
    newline (json and utf8 text without one do).
    """

    directory: str
    value: Serde[V]
