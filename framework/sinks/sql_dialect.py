"""The dialect of a database, for its differences from others: postgres.py and sqlite.py have one each."""

from collections.abc import Callable
from typing import Any, Protocol

from grete.errors import FrameworkError


class Dialect(Protocol):
    """The statements and errors in which a database differs from others."""

    name: str  # for people: no secrets
    errors: tuple[type[Exception], ...]  # what its client raises
    mark: str  # for a parameter
    begin: str  # begins a transaction that writes
    lock: str  # at the end of a SELECT: no other process may begin on this row
    has_table: str  # returns a row if the table of this name, {}, is there
    place: str  # returns one row that tells this database from all others, however its url is spelled
    alone: str  # no other process makes a table of ours until this transaction ends

    def connect(self) -> Any:
        """Return a connection without implicit transactions. Raises TransientError, ConfigError."""

    def failure(self, error: Exception, doing: str) -> FrameworkError:
        """Return TransientError for what may pass by itself, else Halted."""

    def refuses_row(self, error: Exception) -> bool:
        """Tell whether an error that does not pass is about one row, and not about the table or our rights."""

    def adapter(self, connection: Any, table: str) -> Callable[[str, Any], Any]:
        """Return (column, value) → parameter, for a table."""
