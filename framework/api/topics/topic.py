"""Topics and the two ends that a task may hold: Input and Output."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, overload

from grete.api.registry.schema_registry import End, RecordHeaders, RegistrySerde
from grete.api.serdes.avro_serde import refuse_was
from grete.api.serdes.serde import Serde, refuse_no_serde
from grete.api.sinks.external import External
from grete.api.sinks.files import Files
from grete.api.sinks.http import Http
from grete.api.sinks.table import Table
from grete.api.topics.deduplicate import Deduplicate
from grete.errors import ConfigError, GraphError, TaskError
from grete.protocol.ids import PARTITIONS_MAX, check_name

K = TypeVar("K")
V = TypeVar("V")

Null = Literal["refuse", "tombstone"]  # of a topic
Time = Literal["record", "intake", "none"] | Callable[[V], int]  # of an input

_PLACE = re.compile(r"\{[A-Za-z_]*\}")  # in the pattern of topics
_PART = re.compile(r"[A-Za-z0-9_-]+")  # no dot: to Kafka "a.b" and "a_b" are one name
AT_MOST = 10_000  # topics of one pattern: a broker has some thousands of partitions


@dataclass(frozen=True, slots=True)
class Topic(Generic[K, V]):
    """A named stream of keyed records, declared once and shared by both ends.

    Only read in a job: an external source. Only written: an external sink. Written by one stage and read by another: an
    internal stream, partitioned by key, that exists per edge and is not for outside readers; if it is ``public``, each
    record goes to the topic of this name as well, so that readers outside of the job have it, too.

    Args:
        null: The meaning of bytes in an input that the serde reads as None, such as JSON's text null. "refuse": the
            record cannot be decoded. "tombstone": it counts as null, a value as a tombstone, a key as none.
        partitions: The number that a topic from outside has, if it is not the number of tasks that read it: a multiple
            of that, and task n reads the partitions whose number modulo the number of tasks is n. None: as many as
            tasks read it. A topic that the job makes gets this number.
    """

    name: str
    key: Serde[K]
    value: Serde[V]
    public: bool = False
    null: Null = field(default="refuse", kw_only=True)
    partitions: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Give a schema registry's serdes their subjects. Raises ConfigError: an argument is none that it can be."""
        if not isinstance(self.name, str):
            raise ConfigError(f"topic {self.name!r}: the name is no text: name it, as Kafka does")
        if self.partitions is not None and (type(self.partitions) is not int or self.partitions < 1):
            raise ConfigError(
                f"topic {self.name}: partitions={self.partitions!r}: need a whole number above 0, or None"
            )
        if self.null not in ("refuse", "tombstone"):
            raise ConfigError(f"topic {self.name}: null={self.null!r}: need 'refuse' or 'tombstone'")
        ends: tuple[End, End] = ("key", "value")
        for end in ends:
            serde = getattr(self, end)
            refuse_no_serde(serde, f"the {end} of topic {self.name}")
            refuse_was(serde, f"topic {self.name}")
            if isinstance(serde, RegistrySerde):
                object.__setattr__(self, end, serde.of(self.name, end))


@dataclass(frozen=True, slots=True)
class TopicPattern(Generic[K, V]):
    """Topics outside of the job: each record goes to the one that it names (Kafka Streams: TopicNameExtractor).

    A topic is made when the first record names it. The job's metadata keep which there are; they stay.

    Args:
        pattern: Their names, with one place for what ``by`` returns, such as "alerts-{tenant}".
        by: Makes that of the key and the value that are sent: letters, digits, "-" and "_".
        at_most: The number of topics. A record that names one more is an error of that record: ``errors=`` of the input
            says what becomes of it.
        partitions: Of a topic that the job makes. None: as many as the widest stage that writes them has tasks.

    Raises GraphError for a pattern or a number that cannot be.
    """

    pattern: str
    key: Serde[K]
    value: Serde[V]
    by: Callable[[K, V], str] = field(kw_only=True, compare=False)
    at_most: int = field(kw_only=True)
    partitions: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check what can be checked without a record."""
        where = f"TopicPattern({self.pattern!r})"
        if len(_PLACE.findall(self.pattern)) != 1 or self.pattern.count("{") != 1:
            raise GraphError(f'{where}: need one place for what by= returns, as in "alerts-{{tenant}}"')
        begin, end = self.ends
        try:
            check_name("topic", f"{begin}x{end}" if begin else "")  # else a record could name any topic there is
        except ValueError as error:
            raise GraphError(f"{where}: {error}; the pattern begins with some of them") from error
        if not callable(self.by):
            raise GraphError(f"{where}: by={self.by!r}: need a function of key and value that returns text")
        for name, number, most in (("at_most", self.at_most, AT_MOST), ("partitions", self.partitions, PARTITIONS_MAX)):
            if (name == "at_most" or number is not None) and (type(number) is not int or not 1 <= number <= most):
                raise GraphError(f"{where}: {name}={number!r}: need 1 to {most:,}")
        for end_of, serde in (("key", self.key), ("value", self.value)):
            refuse_no_serde(serde, f"the {end_of} of {where}")
            if isinstance(serde, RegistrySerde):
                raise GraphError(
                    f"{where}: its {end_of} has a schema registry's serde, whose subject is a topic's: declare each "
                    "Topic, or use another serde"
                )

    @property
    def ends(self) -> tuple[str, str]:
        """The texts before the place and behind it."""
        begin, end = _PLACE.split(self.pattern)
        return begin, end

    def of(self, part: str) -> Topic[K, V]:
        """Return the topic that a record with this part goes to. Raises ConfigError: no topic could have the name."""
        begin, end = self.ends
        if not isinstance(part, str) or not _PART.fullmatch(part):
            raise ConfigError(f"{self.pattern}: by= has returned {part!r}: need letters, digits, '-' and '_'")
        try:
            return Topic(check_name("topic", f"{begin}{part}{end}"), self.key, self.value, partitions=self.partitions)
        except ValueError as error:
            raise ConfigError(f"{self.pattern}: {error}") from error

    def makes(self, topic: str) -> bool:
        """Tell whether a record could name this topic."""
        begin, end = self.ends
        part = topic[len(begin) : len(topic) - len(end)]
        return topic.startswith(begin) and topic.endswith(end) and bool(_PART.fullmatch(part))

    def one_too_many(self, topic: str) -> TaskError:
        """Return the error of a record that names a topic beyond the bound."""
        return TaskError(
            f"output to {self.pattern}: {topic!r} would be one topic more than at_most={self.at_most}: raise at_most=, "
            "or let by= return fewer names; errors= of the input says what becomes of such a record"
        )


def encode_record(
    topic: Topic[K, V], key: K | None, value: V | None, headers: RecordHeaders
) -> tuple[bytes | None, bytes | None, RecordHeaders]:
    """Return key, value and headers as the topic's serdes write them: those of a schema registry may add headers.

    Their headers replace those that came with another record: each would be taken for this one's schema.
    """
    raw: list[bytes | None] = []
    added: list[tuple[str, bytes | None]] = []
    ends: list[tuple[Serde[Any], Any]] = [(topic.key, key), (topic.value, value)]
    for serde, part in ends:
        if isinstance(serde, RegistrySerde):
            headers = [each for each in headers if each[0] != serde.header]
            data, more = (None, ()) if part is None else serde.encode_with(part)
            raw.append(data)
            added += more
        else:
            raw.append(None if part is None else serde.encode(part))
    return raw[0], raw[1], [*headers, *added] if added else headers


def uses_registry(topic: Topic[Any, Any]) -> bool:
    """Tell whether an end of a topic has a schema registry's serde."""
    return isinstance(topic.key, RegistrySerde) or isinstance(topic.value, RegistrySerde)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Error policy: a record that cannot be decoded or processed goes to ``topic``, and what it did is undone.

    Key and value are written as the bytes that came, whatever the topic's serdes, with headers ``grete.error``,
    ``grete.stage``, ``grete.partition``, ``grete.topic``, ``grete.source`` (the partition read), ``grete.offset``,
    ``grete.index`` (in the message) and ``grete.traceback`` (the last 2,000 characters of what your code raised) added;
    the last two not in deterministic mode, where an output made again must be the same. It has the record's timestamp;
    where that is ahead of the clock, which a broker may refuse, it has the clock's, and ``grete.timestamp`` the
    record's. It is an output of the checkpoint like any other.

    Of a timer the letter has the key, no value, and ``grete.timer``, the time that it was set for. Of a window it has
    key and value as a topic with their serdes has them, and ``grete.window``, ``grete.start``, ``grete.end``,
    ``grete.final`` and ``grete.key_serde``. Of a record without a match it has key and value likewise, and
    ``grete.join``, ``grete.side`` and ``grete.key_serde``.

    Of an output that a sink has refused the letter has no key, the value as the sink got it, the time at which it was
    written, and ``grete.output`` (the attribute of the task), ``grete.sink``, ``grete.checkpoint`` and
    ``grete.number`` (the output's place in it, from 0); of one to a web service ``grete.idempotency_key``.
    """

    topic: Topic[Any, Any]


Errors = Literal["fail", "drop"] | DeadLetter
StartPosition = Literal["earliest", "latest"] | datetime


class Input(Generic[K, V]):
    """A class attribute of a task: read this topic.

    Args:
        errors: The policy for a record that cannot be decoded or processed: "fail" stops the task, DeadLetter sets the
            record aside, "drop" counts it and continues. What the record did is undone in both.
        start: Where a job begins to read a topic that others write: with the first record that is there, behind the
            last one, or with the first one whose timestamp is that time or later. The job's first start settles it
            (docs/guides/inputs.md).
        deduplicate: ById or BySequence, which drops what comes a second time, of a topic that others write into this
            job. A record that goes to the dead-letter topic is not remembered: each time it comes, it has a letter.
        bootstrap: At each start the task reads this topic, which others write, to the end that it has then, before it
            reads its other inputs (Samza: bootstrap stream).
        priority: While records of this topic, which others write, are at hand, the task reads none of its other topics
            from outside that have a lower number (Samza: MessageChooser). Equal ones are read in the order of time.
        broadcast: Each task of the stage reads every record of the topic, however many partitions that has (Kafka
            Streams: GlobalKTable; Flink: broadcast state); for what is small.
        time: The time of a record: the timestamp that its producer gave it ("record"), what a function makes of its
            value (ms since 1970; a null value keeps the timestamp), or the moment at which the task takes it in
            ("intake"). "none": a record keeps its timestamp, and event time does not go by it: it neither moves on nor
            waits for this topic. That is the default with ``bootstrap``, for a table beside a stream; else "record" is.
            A job keeps the default that it began with. This and the next two are for a topic that others write.
        out_of_order_ms: By how much a record may be older than another before it in its partition: the partition holds
            event time that far back.
        idle_ms: Replaces the setting event_time_idle_ms.
    """

    def __init__(
        self,
        topic: Topic[K, V],
        errors: Errors = "fail",
        *,
        start: StartPosition = "earliest",
        deduplicate: Deduplicate[K, V] | None = None,
        bootstrap: bool = False,
        priority: int = 0,
        broadcast: bool = False,
        time: Time[V] | None = None,
        out_of_order_ms: int = 0,
        idle_ms: int | None = None,
    ) -> None:
        """Declare the input. Raises ConfigError for ``time=`` on a value whose schema id is in a header."""
        self.topic = topic
        self.errors = errors
        self.start = start
        self.deduplicate = deduplicate
        self.bootstrap = bootstrap
        self.priority = priority
        self.broadcast = broadcast
        if callable(time) and isinstance(topic.value, RegistrySerde) and topic.value.in_header:
            raise ConfigError(
                f"topic {topic.name}: time= with a function reads the value alone, and its schema id is in a header: "
                'SchemaRegistry(…, schema_id="payload")'
            )
        self.time: Time[V] = "record" if time is None else time
        self.says_time = time is not None
        self.out_of_order_ms = out_of_order_ms
        self.idle_ms = idle_ms


class Output(Generic[K, V]):
    """A class attribute of a task: write this topic, or to files, a table, a web service or a system of your own.

    Of a TopicPattern each record goes to the topic that it names.

    On the running task ``send`` is bound.

    Args:
        errors: The policy for an output that a table, web service or system of your own refuses for good: "fail" stops
            the task, DeadLetter sets the output aside, "drop" counts it and continues. Not in deterministic mode.
    """

    target: Topic[K, V] | TopicPattern[K, V] | Files[V] | Table[V] | Http[V] | External[V]

    @overload
    def __init__(self, target: Topic[K, V] | TopicPattern[K, V]) -> None: ...

    @overload
    def __init__(
        self: "Output[None, V]", target: Files[V] | Table[V] | Http[V] | External[V], errors: Errors = "fail"
    ) -> None: ...

    def __init__(self, target: Any, errors: Errors = "fail") -> None:
        """Declare the output."""
        self.target = target
        self.errors = errors

    def send(
        self,
        key: K | None,
        value: V | None,
        *,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Write a record of the current checkpoint.

        ``timestamp`` (ms) is that of the record or timer in process unless given. ``partition`` is that of Kafka's
        murmur2(key); without a key, each in turn. Where the target is no topic, only the value counts. Raises
        SerdeError, or TaskError if the partition does not exist or the task is not running (``init`` and ``close`` may
        not send).
        """
        raise TaskError(f"output {self.target!r} is used outside of process, process_batch and the on_… methods")
