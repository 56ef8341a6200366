"""Says what lies behind the end of an input: a transaction that a producer has open hides what comes after it."""

import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from grete.errors import ConfigError
from grete.open_transaction import OpenTransaction
from grete.ports import LogReader
from grete.protocol.ids import TopicPartition
from grete.quoting import key_text

LOOK_S = 0.25  # between two looks: a transaction of a program that works ends within a second or so
SAY_S = 2.0  # for which a transaction may be open before it is said, and named once a minute
AGAIN_S = 60.0  # between two lines of one that stays open: a screen is read once a minute
KEY_MAX = 40  # bytes of a key that are shown


def told(partition: TopicPartition, found: OpenTransaction) -> str:
    """Return the open transaction behind a partition's end, and the way to its producer, in words for a person."""
    when, key = "", ""
    if found.timestamp_ms is not None:
        when = f" (a message of {datetime.fromtimestamp(found.timestamp_ms / 1000, UTC).isoformat()})"
        shown = None if found.key is None else found.key[:KEY_MAX].decode(errors="backslashreplace")
        key = f" with key {key_text(shown)}"
    place = f"--topic {partition.topic} --partition {partition.partition}"
    return (
        f"{partition}: an open transaction begins at offset {found.offset:,}{key}{when}: {found.end - found.offset:,} "
        "offsets from there on cannot be read before its producer ends it, or the broker after the producer's "
        f"transaction.timeout.ms. kafka-transactions.sh --bootstrap-server BROKER describe-producers {place} names the "
        f"producer; … abort {place} --start-offset {found.offset} ends a transaction that hangs"
    )


def told_all(log: LogReader, partitions: Collection[TopicPartition]) -> list[str]:
    """Return the open transactions behind the ends of partitions, in words."""
    return [told(partition, found) for partition, found in log.open_transactions(partitions).items()]


def refuse_open(log: LogReader, partitions: Collection[TopicPartition], doing: str) -> None:
    """Raise ConfigError if something lies behind the end of a partition; ``doing``: what that would leave out."""
    for partition, found in log.open_transactions(partitions).items():
        raise ConfigError(f"{doing}: {told(partition, found)}", partition=partition, offset=found.offset)


def full_ends(log: LogReader, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of the partitions, with the messages that cannot be read yet."""
    hidden = log.open_transactions(partitions)
    return {each: hidden[each].end if each in hidden else end for each, (_, end) in log.all_bounds(partitions).items()}


def stable_ends(
    log: LogReader, partitions: Collection[TopicPartition], say: Callable[[str], None]
) -> dict[TopicPartition, int]:
    """Return the ends of the partitions as of this call, once all before them can be read or was taken back."""
    said = WaitNotices(say)
    first = {each: found.end for each, found in log.open_transactions(partitions).items()}
    hidden = dict.fromkeys(first)
    while hidden:
        found = log.open_transactions(hidden)
        hidden = {each: None for each, there in found.items() if there.offset < first[each]}
        said.look({each: found[each] for each in hidden})
        if hidden:
            time.sleep(LOOK_S)
    return {each: first.get(each, end) for each, (_, end) in log.all_bounds(partitions).items()}


class HiddenInput:
    """Tells a run whether it has read the records that open transactions hid from it.

    The run may have asked for the ends of its inputs before the first look, and a transaction may have ended in
    between: so the ends are to have all that could be read at the first look.
    """

    def __init__(self, log: LogReader, partitions: Collection[TopicPartition], say: Callable[[str], None]) -> None:
        self._log, self._partitions, self._saying = log, partitions, WaitNotices(say)
        self._ends, self._least = dict[TopicPartition, int](), dict[TopicPartition, int]()
        self._looked_s = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether to look again, only to say what is awaited: other inputs may wait for a table, too."""
        return time.monotonic() - self._looked_s >= SAY_S

    def is_over(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether ``ends`` have all of it: it can be read now, or was taken back; else say what is awaited."""
        self._looked_s = time.monotonic()
        found = self._log.open_transactions(self._partitions)
        self._least = self._least or {each: end for each, (_, end) in self._log.all_bounds(self._partitions).items()}
        self._ends = {each: there.end for each, there in found.items()} | self._ends
        hidden = {each: there for each, there in found.items() if there.offset < self._ends[each]}
        self._saying.look(hidden)
        now = self._least | {each: end for each, (_, end) in self._log.all_bounds(self._ends).items()}
        return not hidden and all(end <= ends.get(each, 0) for each, end in now.items())


class WaitNotices:
    """Says what is waited for: not at once, and then once a minute."""

    def __init__(self, say: Callable[[str], None], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock_s = say, clock_s
        self._due_s: float | None = None

    def look(self, found: dict[TopicPartition, OpenTransaction]) -> None:
        """Take what is waited for now; nothing: the next wait begins afresh."""
        now = self._clock_s()
        if not found:
            self._due_s = None
        elif self._due_s is None:
            self._due_s = now + SAY_S
        elif now >= self._due_s:
            self._due_s = now + AGAIN_S
            for partition, each in found.items():
                self._say(f"waits: {told(partition, each)}")
