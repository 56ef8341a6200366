"""A log in memory for a feed that may end between any two of its writes."""

from collections.abc import Mapping, Sequence

from grete.ports import ExternalRecord


class Crash(Exception):
    """The feed's process ends here."""


class SplitLog:
    """Metadata in memory, as on Kafka: records, then each entry, and a feed may end between any two of them."""

    def __init__(self) -> None:
        self.records: list[ExternalRecord] = []
        self.meta: dict[str, bytes] = {}
        self.crash_in = -1  # writes from now on

    def partitions(self, topic: str) -> int | None:
        """Return 2."""
        return 2 if topic == "lines" else None

    def meta_get(self, key: str) -> bytes | None:
        """Return an entry."""
        return self.meta.get(key)

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return entries."""
        return sorted((key, entry) for key, entry in self.meta.items() if key.startswith(prefix))

    def _write(self) -> None:
        if self.crash_in == 0:
            raise Crash
        self.crash_in -= 1

    def produce_with_meta(
        self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
    ) -> int:
        """Write one after the other."""
        del sync
        for record in records:
            self._write()
            self.records.append(record)
        for key, entry in meta.items():
            self._write()
            self.meta.pop(key, None)
            if entry is not None:
                self.meta[key] = entry
        return len(self.records) - 1

    def pin(self, meta: Mapping[str, bytes | None], over: bytes | None) -> bool:
        """Write nothing: a feed pins nothing."""
        del meta, over
        return False
