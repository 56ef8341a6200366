"""Answers of the page about what is stored: pages of rows, as text."""

import msgspec


class EntryShown(msgspec.Struct, frozen=True):
    """An entry of a store. ``raw``: its key as hex digits."""

    partition: int
    raw: str
    key: str
    value: str


class EntriesPage(msgspec.Struct, frozen=True):
    """Entries of a store. ``next``: what the next page begins after, None: there is none."""

    rows: list[EntryShown]
    next: str | None
    notes: list[str]
    serdes: tuple[str, str]


class RecordShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record. ``told``: what a dead letter says of its error; ``again``: it was sent again."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str
    value: str
    headers: list[tuple[str, str]]
    told: dict[str, str] | None = None
    again: bool = False


class MessageShown(msgspec.Struct, frozen=True):
    """A message of a changelog."""

    offset: int
    append_time_ms: int
    type: str
    text: str
    generation: int | None
    seq: int | None


class RowsPage(msgspec.Struct, frozen=True):
    """Rows of a partition, which holds ``start`` to ``end``. ``next``: where the next page begins, None: nowhere."""

    partitions: int
    start: int
    end: int
    next: int | None
    rows: list[RecordShown] | list[MessageShown]


class LatestPage(msgspec.Struct, frozen=True):
    """Rows of some or all ``partitions``, the latest first, found among ``read`` rows. ``next``: where the next begins.

    ``command``: the line that sends all letters of this filter again, "": they are no letters.
    """

    partitions: int
    read: int
    next: str | None
    rows: list[RecordShown]
    command: str = ""
