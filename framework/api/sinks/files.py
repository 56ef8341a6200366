"""Files as a sink: each checkpoint's outputs of a task become one file, exactly once (S2)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from grete.api.serdes.serde import Serde

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Files(Generic[V]):
    """A directory that receives ``part-{stage}-{partition}-{checkpoint}.jsonl``, one encoded value per line.

    The name of the file is the key of its application: applied again, it is the same file. A value's bytes must hold no
    newline, or the send raises SerdeError: use json, or utf8 for lines.
    """

    directory: str
    value: Serde[V]
