"""Judges the chain job from outside: by the inputs given to it, the entries that left it, and its state at the end.

It reads entries as any consumer does and knows nothing of checkpoints, generations or changelogs. Every entry extends
two chains by one link: its account's, in the order of the sink's partition, and its source's, in the order of the
inputs. A lost, repeated, reordered or taken-back piece of work breaks at least one of them at that very entry.
"""

from collections.abc import Iterable, Mapping

import msgspec

from tests.verification.chaos.chain import Entry, Given, Tail, extended

VIOLATIONS_MAX = 20  # kept and shown; the first ones tell most
PENDING_MAX = 100_000  # entries of sources whose predecessors have not been seen; then they never will be


class Checker:
    """Takes entries as they come, partition by partition, and inputs. ``violations`` is empty if all is well."""

    def __init__(self) -> None:
        self.entries = 0
        self.accounts: dict[str, Tail] = {}
        self.sources: dict[str, Tail] = {}
        self.given: dict[str, int] = {}
        self.violations: list[str] = []
        self.found = 0
        self._homes: dict[str, int] = {}
        self._order: dict[tuple[str, str], int] = {}  # source, account → number of the last input
        self._pending: dict[str, dict[int, tuple[str, Entry]]] = {}
        self._waiting = 0
        self._decode_entry = msgspec.json.Decoder(Entry).decode
        self._decode_given = msgspec.json.Decoder(Given).decode

    @property
    def intact(self) -> bool:
        """Whether no violation was found so far."""
        return not self.found

    def violated(self, text: str) -> None:
        """Note a violation."""
        self.found += 1
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(text)

    def input(self, partition: int, offset: int, key: bytes, value: bytes) -> None:
        """Take a record of the topic ``given``: sources number their inputs, so the test's own feeding is checked."""
        source, number = key.decode(), self._decode_given(value).number
        if number != self.given.get(source, 0) + 1:
            self.violated(f"given[{partition}] offset {offset}: {source} gives {number} after {self.given.get(source)}")
        self.given[source] = number

    def entry(self, partition: int, offset: int, key: bytes, value: bytes) -> None:
        """Take a record of the topic ``entries``."""
        self.entries += 1
        where = f"entries[{partition}] offset {offset}"
        account, entry = key.decode(), self._decode_entry(value)
        if self._homes.setdefault(account, partition) != partition:
            self.violated(f"{where}: {account} had partition {self._homes[account]} before")
        self._extend_account(where, account, entry)
        link = entry.link
        if link.number <= self._order.get((link.source, account), 0):
            self.violated(f"{where}: {account} has input {link.number} of {link.source} out of order")
        self._order[link.source, account] = link.number
        self._take_link(where, entry)

    def _extend_account(self, where: str, account: str, entry: Entry) -> None:
        known = self.accounts.get(account, Tail())
        expected = extended(known, entry.link.tail.digest, entry.nonce)
        if entry.tail != expected:
            what = "a fork" if entry.tail.count == expected.count else "a repeat or a gap"
            self.violated(
                f"{where}: {what}: {account} goes from {known} to {entry.tail} with input {entry.link.number} of "
                f"{entry.link.source}, expected {expected}"
            )
        self.accounts[account] = entry.tail

    def _take_link(self, where: str, entry: Entry) -> None:
        """Partitions are read one after another, so a source's links may come early; they are chained in order."""
        source, number = entry.link.source, entry.link.number
        pending = self._pending.setdefault(source, {})
        known = self.sources.get(source, Tail())
        if number <= known.count or number in pending:
            self.violated(f"{where}: input {number} of {source} came out twice")
            return
        pending[number] = where, entry
        self._waiting += 1
        while (found := pending.pop(known.count + 1, None)) is not None:
            self._waiting -= 1
            at, next_entry = found
            link = next_entry.link
            expected = extended(known, f"{source}:{link.number}", link.nonce)
            if link.tail != expected:
                self.violated(f"{at}: {source} goes from {known} to {link.tail}, expected {expected}")
            known = self.sources[source] = link.tail
        if self._waiting > PENDING_MAX:
            self.violated(f"{where}: {source} waits for input {known.count + 1}, which never came out")
            self._waiting = 0

    def complete(self) -> None:
        """Nothing more will come: everything given must have come out, and nothing else."""
        for source, count in self.given.items():
            if self.sources.get(source, Tail()).count != count:
                have = self.sources.get(source, Tail()).count
                self.violated(f"{source}: {count} inputs were given, the entries hold them up to {have}")
        for source in self.sources.keys() - self.given.keys():
            self.violated(f"{source} came out and was never given")
        total = sum(self.given.values())
        if self.entries != total:
            self.violated(f"{total} inputs were given, {self.entries} entries came out")

    def state(self, name: str, expected: Mapping[str, Tail], found: Iterable[tuple[str, Tail]]) -> None:
        """Compare a store with what the entries say."""
        left = dict(expected)
        for key, tail in found:
            if left.pop(key, None) != tail:
                self.violated(f"store {name}: {key} is {tail}, the entries say {expected.get(key)}")
        for key, tail in left.items():
            self.violated(f"store {name}: {key} is missing, the entries say {tail}")

    def same(self, other: "Checker") -> None:
        """Compare with what another reading of the same topics has found: what was seen once must stay."""
        if (self.entries, self.accounts, self.sources) != (other.entries, other.accounts, other.sources):
            self.violated(
                f"read live: {self.entries} entries; read again at the end: {other.entries}, or with other contents"
            )
