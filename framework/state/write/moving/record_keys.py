"""The record key of each entry of a task's state, or the part of it that places the record.

Plain data, so that Spark's executors may have it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.serdes.serde import placing_in_store, utf8
from grete.api.tasks.timers import of_timer
from grete.execution.timing.reserved_stores import TIMERS
from grete.execution.timing.timers import WALL

_NAME = 8  # in a timer's key: 8 bytes of time, a byte of length, owner, key (grete.execution.timing.timers)

InTopic = Callable[[bytes], bytes]  # a key as a store has it → what places its record, as a topic has it


class KeyForm(NamedTuple):
    """Location, in a store's key, of what places its record: a slice of it, perhaps in another form."""

    start: int = 0
    stop: int | None = None
    in_topic: InTopic | None = None  # None: it is the same

    def of(self, key: bytes) -> bytes:
        """Return the record's key, or the part of it that places the record."""
        part = key[self.start : self.stop]
        return part if self.in_topic is None else self.in_topic(part)


class TimerOwner(NamedTuple):
    """The owner of a timer whose key is not just text: a window, join or versioned store, or the task's Timers()."""

    key_of_timer: Callable[[str], bytes | None]
    in_topic: InTopic | None


class RecordKeys(NamedTuple):
    """The forms of a stage. ``by_time``: stores whose entries outdate by the event time as it is for their keys."""

    forms: Mapping[int, KeyForm]  # of the stores that do not have the record's key as it is
    owners: Mapping[str, TimerOwner]
    by_time: frozenset[int]

    def of(self, store: int, key: bytes) -> bytes | None:
        """Return the record key that an entry is for; None: it is for all, as a timer of windows of all keys."""
        if store != TIMERS:
            form = self.forms.get(store)
            return key if form is None else form.of(key)
        name, text = timer_parts(key)
        owner = self.owners.get(name)
        if owner is None:
            return text.encode()
        of_timer = owner.key_of_timer(text)
        return of_timer if of_timer is None or owner.in_topic is None else owner.in_topic(of_timer)


def key_of_entry(store: int, key: bytes) -> bytes:
    """Return the part of an entry's key that is a record's, as far as that is plain: what a task has called a timer."""
    return key[_NAME + 1 + key[_NAME] :] if store == TIMERS else key


def timer_parts(key: bytes) -> tuple[str, str]:
    """Return owner and key of a timer, as it is stored."""
    end = _NAME + 1 + key[_NAME]
    return key[_NAME + 1 : end].decode(), key[end:].decode()


def timer_with(key: bytes, of_timer: bytes, new: bytes) -> bytes:
    """Return a stored timer of a window or join with another encoded key than ``of_timer``, which is its end."""
    end = _NAME + 1 + key[_NAME]
    text = key[end:].decode()
    return key[:end] + (text[: len(text) - len(of_timer)] + new.decode("latin-1")).encode()


def record_keys(graph: StageGraph) -> RecordKeys:
    """Return the forms of the keys in a stage's state."""
    ids = graph.store_ids()
    plain = (*graph.stores.values(), *graph.seen.values())
    forms = {ids[store.name]: KeyForm(in_topic=placing_in_store(store.key)) for store in plain}
    by_time = {*graph.expiring_ids(), *(ids[store.name] for store in graph.seen.values())}
    for each in graph.stateful.values():
        of_each = [ids[store.name] for store in each.stores().values()]
        forms |= dict.fromkeys(of_each, KeyForm(*each.key_at, placing_in_store(each.key)))
        by_time |= {*of_each} if each.by_time else set()
    owners = {each.name: TimerOwner(each.key_of_timer, placing_in_store(each.key)) for each in graph.stateful.values()}
    for clock in graph.timers:
        if (key := graph.declared_timers(clock).key) is not utf8:
            owners[WALL if clock == "wall" else ""] = TimerOwner(of_timer, placing_in_store(key))
    told = {store: form for store, form in forms.items() if form != KeyForm()}
    return RecordKeys(told, owners, frozenset(by_time))
