"""Objects that hold files, processes or connections until they are closed."""

from abc import ABC, abstractmethod
from typing import Self


class Closable(ABC):
    """A ``with`` block closes it at its end, whatever happens within."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all that it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
