"""The parts of records that errors quote, for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from grete.quoting import ShowRecords, set_shown


@contextmanager
def showing(what: ShowRecords) -> Iterator[None]:
    """Quote all of a record, its key alone, or nothing."""
    set_shown(what)
    try:
        yield
    finally:
        set_shown("all")
