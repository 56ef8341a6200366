"""Classification of broker refusals: the refused record, and the broker setting that decides."""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter

from confluent_kafka import KafkaError

from grete.errors import FrameworkError, LogAway, Refused
from grete.halts import HaltCode
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.quoting import key_text

SKEW_MS = 60_000  # between our clock and a broker's: what is closer to a limit the broker judges
PAST_MS = 3_600_000  # an older record is looked at: a topic that takes none of the last hour takes none at all

_TOO_LARGE = (
    "too large: raise the topic's max.message.bytes (or the broker's message.max.bytes) and the Kafka option "
    "message.max.bytes, or lower the setting frame_bytes_max; no record may be larger"
)
REFUSALS: dict[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: _TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    KafkaError.INVALID_RECORD: (
        "the topic takes no message without a key, as one whose cleanup.policy is compact. A stream or changelog needs "
        "delete: kafka-configs.sh --alter --topic TOPIC --add-config cleanup.policy=delete; then start the job again, "
        "which looks whether anything is missing. Records for a compacted output need keys"
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "the topic takes no timestamps that are further from the broker's clock than its "
        "message.timestamp.after.max.ms (an hour ahead, if it is not set) and message.timestamp.before.max.ms: give "
        "Output.send another timestamp, or raise these"
    ),
}

_time = attrgetter("timestamp_ms")
TimeBounds = tuple[tuple[str, int], tuple[str, int]]  # of a topic: the setting and the ms of a record behind, and ahead


def guilty(code: int, sent: Sequence[ExternalRecord]) -> ExternalRecord | None:
    """Return the record that a broker has refused with this error, as far as can be told; None: of none."""
    if not sent:
        return None
    if code == KafkaError.INVALID_TIMESTAMP:
        now = time.time_ns() // 1_000_000
        outputs = (each for each in sent if each.timestamp_ms)  # what is the job's own gets its time from the log
        return max(outputs, key=lambda each: abs(each.timestamp_ms - now), default=None)
    if code == KafkaError.INVALID_RECORD:
        return next((each for each in sent if each.key is None), sent[0])
    return max(sent, key=lambda each: len(each.key or b"") + len(each.value or b""))


def told(record: ExternalRecord) -> str:
    """Return the text about a record."""
    size = len(record.key or b"") + len(record.value or b"")
    key = "" if record.key is None else f", key {key_text(record.key[:100])}"
    return f"{size} bytes to {record.partition}{key}{_when(record.timestamp_ms)}"


def _when(timestamp_ms: int) -> str:
    if not timestamp_ms:
        return ""  # a message of the job's own: the log gives it its time
    try:
        shown = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00") + "Z"
    except (ValueError, OverflowError, OSError):
        return f", timestamp {timestamp_ms}"  # beyond the year 9999
    return f", timestamp {timestamp_ms} ({shown})"


class TimestampLimits:
    """Refuses outputs that their topic would refuse for their timestamps, before anything of their checkpoint is sent.

    A topic is asked for its limits once there is a record ahead of the clock, or an old one.
    """

    def __init__(self, ask: Callable[[str], TimeBounds | None]) -> None:
        """``ask`` returns what a topic has as its limits, None if it has none."""
        self._ask = ask
        self._known: dict[str, TimeBounds | None] = {}

    def check(self, records: Sequence[ExternalRecord], partitions: Iterable[TopicPartition]) -> None:
        """Raise Refused for a record that will not be taken. ``partitions``: all that the records are for."""
        if not records:
            return
        now = time.time_ns() // 1_000_000
        times = list(map(_time, records))
        low, high = min(times), max(times)
        if high <= now and low >= now - PAST_MS:
            return
        for topic in {partition.topic for partition in partitions}:
            if self._beyond(self._of(topic), low, now) or self._beyond(self._of(topic), high, now):
                del self._known[topic]  # it may have been raised since
                self._find(records, topic, self._of(topic), now)

    def _of(self, topic: str) -> TimeBounds | None:
        if topic not in self._known:
            try:
                self._known[topic] = self._ask(topic)
            except LogAway:
                return None
            except FrameworkError:
                self._known[topic] = None  # as where this user may not see settings: the broker judges
        return self._known[topic]

    def _beyond(self, limits: TimeBounds | None, timestamp_ms: int, now: int) -> tuple[str, int] | None:
        """Return the limit that a timestamp breaks, if it does for certain. Kafka's clients read 0 as "now"."""
        if limits is None or not timestamp_ms:
            return None
        behind, ahead = limits
        if timestamp_ms > now + ahead[1] + SKEW_MS:
            return ahead
        return behind if timestamp_ms < now - behind[1] - SKEW_MS else None

    def _find(self, records: Sequence[ExternalRecord], topic: str, limits: TimeBounds | None, now: int) -> None:
        for record in records:
            limit = self._beyond(limits, record.timestamp_ms, now) if record.partition.topic == topic else None
            if limit is not None:
                away_s, name = (record.timestamp_ms - now) // 1_000, limit[0]
                where = f"{away_s} s ahead of" if away_s > 0 else f"{-away_s} s behind"
                raise Refused(
                    f"sending {told(record)}: the timestamp is {where} the clock, and the topic has {name} = "
                    f"{limit[1]}: give Output.send another timestamp, or raise it: kafka-configs.sh --alter --topic "
                    f"{topic} --add-config {name}=MS",
                    code=HaltCode.RECORD_REFUSED,
                    partition=record.partition,
                )
