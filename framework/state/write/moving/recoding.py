"""The entries of a job in another version of the serdes, and the partition to which each goes.

A stage whose records come from outside has them where their producer put them: its entries stay in their task. One that
reads a stream whose keys get other bytes has its records elsewhere then, and an entry goes with the key of its record.
Only a store whose keys are those of the records tells that, as in a rescale.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.serdes.serde import Serde, functions_of, one_key_serde, written_in_two_ways
from grete.api.stateful.declaration import Stateful
from grete.api.store import Store
from grete.errors import ConfigError
from grete.execution.timing.reserved_stores import META, OUTBOX, TIMERS
from grete.ports import LogReader
from grete.quoting import key_text
from grete.state.write.moving.entries import entries_of
from grete.state.write.moving.record_keys import timer_parts, timer_with
from grete.state.write.moving.routes import Route
from grete.stores.overlay.expiring_store import EXPIRY_BYTES

OTHER_NAME = "give the job another name: it begins from its inputs, or from their history (grete backfill)"

Recode = Callable[[bytes], bytes]


class RecodedEntry(NamedTuple):
    """An entry before and after. ``at``: its partition, None: each of its stage, since the entry is for all keys."""

    store: int
    key: bytes
    value: bytes
    new_key: bytes
    new_value: bytes
    at: int | None

    def changes(self, partition: int) -> bool:
        """Return whether an entry of that partition gets other bytes, or goes to another partition."""
        return (self.key, self.value) != (self.new_key, self.new_value) or self.at not in {partition, None}


class Recoding(NamedTuple):
    """The changes of a stage's entries. ``moves``: an entry goes to the partition of its key, as its records do."""

    stage: StageGraph  # as it was
    keys: Mapping[int, Recode]  # by store; those that keep their bytes are left out
    values: Mapping[int, Recode]
    timers: Mapping[str, tuple[Stateful, Recode]]  # by owner
    moves: bool
    stays: frozenset[int]  # stores that belong to no key of a stream

    @property
    def changes(self) -> bool:
        """Return whether an entry of the stage may change."""
        return bool(self.keys or self.values or self.moves)

    def of(self, store: int, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        """Return the key and the value of an entry as they are then. Raises SerdeError."""
        if store == TIMERS:
            return self._timer(key), value
        recode, recode_value = self.keys.get(store), self.values.get(store)
        return key if recode is None else recode(key), value if recode_value is None else recode_value(value)

    def tells(self, route: Route, store: int, key: bytes) -> bool:
        """Return whether the key of an entry decides its partition."""
        return self.moves and not self._stays(store, key) and route.keys.of(store, key) is not None

    def partition_of(self, route: Route, store: int, new_key: bytes) -> int | None:
        """Return the partition of an entry with its new key."""
        if not self.moves or self._stays(store, new_key):
            return route.partition
        record_key = route.keys.of(store, new_key)
        return None if record_key is None else route.place(record_key, route.before)

    def is_own_timer(self, store: int, key: bytes) -> bool:
        """Return whether an entry is a timer that the task's code has set: its key may be any text."""
        return store == TIMERS and timer_parts(key)[0] not in self.timers

    def _stays(self, store: int, key: bytes) -> bool:
        return store in self.stays or self.is_own_timer(store, key)

    def _timer(self, key: bytes) -> bytes:
        owner, text = timer_parts(key)
        if owner not in self.timers:
            return key
        stateful, recode = self.timers[owner]
        of_timer = stateful.key_of_timer(text)
        return key if of_timer is None else timer_with(key, of_timer, recode(of_timer))


def recoding_of(old: StageGraph, new: StageGraph, streams: Collection[str]) -> Recoding:
    """Return the change of entries from one version of a stage to another. ``streams``: topics that it reads by key.

    Raises ConfigError: its records get other keys, and it has a store whose keys are of another kind.
    """
    ids, expiring = old.store_ids(), old.expiring_ids()
    keys, values = dict[int, Recode](), dict[int, Recode]()
    for before, now in zip(old.all_stores(), new.all_stores(), strict=True):
        number = ids[before.name]
        if before.key is not now.key and (recode := _recode(before.key, now.key)):
            keys[number] = recode
        if before.value is not now.value and (recode := _recode(before.value, now.value)):
            values[number] = _behind_expiry(recode) if number in expiring else recode
    pairs = zip(old.stateful.values(), new.stateful.values(), strict=True)
    timers = {was.name: (was, recode) for was, now in pairs if (recode := _recode(was.key, now.key))}
    moving = [each.topic for each in new.inputs.values() if each.topic.name in streams and _differs(each.topic.key)]
    moves = bool(moving) and old.partitions > 1
    if moves:
        _check_serdes(old, moving[0].name, moving[0].key)
    stays = {META, OUTBOX, *(ids[store.name] for store in old.seen.values())}
    return Recoding(old, keys, values, timers, moves, frozenset(stays))


def entries_recoded(log: LogReader, route: Route, forms: Recoding) -> Iterator[RecodedEntry]:
    """Yield the entries of a task, but for what it notes of itself, and what they are then. As ``entries_of``.

    Raises SerdeError, ConfigError: an entry that cannot be read, or cannot tell where it belongs.
    """
    for store, key, value in entries_of(log, route):
        if store in {META, OUTBOX}:
            continue
        if forms.tells(route, store, key):
            record_key = route.keys.of(store, key)
            assert record_key is not None
            if (belongs := route.place(record_key, route.before)) != route.partition:
                raise ConfigError(
                    f"store {route.stage}/{route.stores[store]}: key {key_text(record_key)} is in partition "
                    f"{route.partition}, and its own key would be in {belongs}: it is not keyed as the records are, so "
                    f"nothing tells where it goes when these get other bytes: {OTHER_NAME}",
                    stage=route.stage,
                )
        new_key, new_value = forms.of(store, key, value)
        if new_key != key and forms.of(store, new_key, value)[0] != new_key:
            raise ConfigError(
                f"store {route.stage}/{route.stores[store]}: key {key_text(key)} would be {key_text(new_key)}, and "
                f"that another one: what its type writes is another value when it is read: {OTHER_NAME}",
                stage=route.stage,
            )
        yield RecodedEntry(store, key, value, new_key, new_value, forms.partition_of(route, store, new_key))


def _check_serdes(stage: StageGraph, topic: str, key: Serde[object]) -> None:
    """Refuse a store whose keys cannot be the records' keys, which get other bytes."""
    stores: list[Store[Any, Any] | Stateful] = [*stage.stores.values(), *stage.stateful.values()]
    other = next((each for each in stores if each.key != key), None)
    if other is not None:
        raise ConfigError(
            f"store {stage.name}/{other.name} has keys of serde {other.key.name}, and the records of topic {topic} "
            f"have keys of {key.name}, which may get other bytes and go to another of the {stage.partitions} "
            f"partitions of the stage: nothing tells which entries are to go with them: {OTHER_NAME}",
            stage=stage.name,
        )


def _differs(key: Serde[object]) -> bool:
    return written_in_two_ways(one_key_serde(key))


def _recode(before: Serde[object], now: Serde[object]) -> Recode | None:
    """Return the function from bytes of one serde to those of another; None: they are the same."""
    if functions_of(before) == functions_of(now):
        return None

    def recode(data: bytes) -> bytes:
        return now.encode(before.decode(data))

    return recode


def _behind_expiry(recode: Recode) -> Recode:
    def recode_stored(stored: bytes) -> bytes:
        return stored[:EXPIRY_BYTES] + recode(stored[EXPIRY_BYTES:])

    return recode_stored
