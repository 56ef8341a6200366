"""Classification of Kafka's errors, with the remedy for each."""

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from grete.errors import ConfigError, FrameworkError, Halted, LogAway, OffsetOutOfRange, Refused, TransientError
from grete.halts import HaltCode
from grete.logs.kafka.client.refusals import REFUSALS, guilty, told
from grete.logs.kafka.client.tls_diagnosis import ClientConfig, diagnosis
from grete.ports import ExternalRecord

# a line of librdkafka's that differs in its numbers only is logged this often: it tries 20 times a second
REPEAT_S = 60.0
KINDS_MAX = 1_000  # kinds of errors remembered as told: bounds memory

logger = logging.getLogger("grete.kafka")
logger.addFilter(lambda record: "enable.gapless.guarantee is experimental" not in record.getMessage())

# What a user needs where the broker says no and the caller has not named it.
_ACCESS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Write on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Write on a topic, or IdempotentWrite on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write and Describe on the transactional id",
}
# No broker answered, or one that is just starting: the same question is asked again.
AWAY = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY_BROKER,
    KafkaError._WAIT_COORD,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
}
# The client forgets topics when it loses its last broker, and a broker that has just started does not know them yet.
UNKNOWN = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
# Some broker answered, and it is not what we have sent that is wrong: a new process may well succeed.
PASSING = {
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.DUPLICATE_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.INVALID_MSG,  # damaged on the way: the sum of its bytes is wrong
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._FENCED,
}
_UNKNOWN = (
    "Grete knows no remedy for this error, and starts again restarts_max times: the broker's log may say more. If it "
    "stays, what Kafka's documentation says of this name is the way"
)
_ADVICE: dict[int, tuple[type[FrameworkError], str]] = {
    code: (kind, advice)
    for kind, advice, codes in (
        (
            ConfigError,
            (
                "nobody lets us in as this user: check the options sasl.mechanism, sasl.username and sasl.password; "
                "with OAUTHBEARER whether the service of tokens answers, and the options "
                "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
            ),
            (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM),
        ),
        (ConfigError, "no secure connection: check security.protocol and the options ssl.*", (KafkaError._SSL,)),
        (
            ConfigError,
            "no permission: grant this user {access} (docs/guides/kafka.md has all that is needed)",
            tuple(_ACCESS),
        ),
        (
            ConfigError,
            "lower the option producer.transaction.timeout.ms, or raise the broker's transaction.max.timeout.ms",
            (KafkaError.INVALID_TRANSACTION_TIMEOUT,),
        ),
        (ConfigError, "there is no such topic or partition: create it first", tuple(UNKNOWN)),
        (
            ConfigError,
            "the broker does not allow this: check the topic's cleanup.policy and the broker's policies",
            (KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG, KafkaError.INVALID_REPLICATION_FACTOR),
        ),
        (
            ConfigError,
            "the broker is too old: Grete needs Kafka 2.5 or newer",
            (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE),
        ),
        (
            ConfigError,
            "the broker or the topic takes no messages that are compressed so: change the option compression.codec",
            (KafkaError.UNSUPPORTED_COMPRESSION_TYPE, KafkaError._BAD_COMPRESSION),
        ),
        (
            ConfigError,
            "the topic keeps messages in a format of before Kafka 0.11: set its message.format.version higher",
            (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,),
        ),
        (ConfigError, "the broker takes no topic of this name", (KafkaError.TOPIC_EXCEPTION,)),
        (ConfigError, "set the option acks to all", (KafkaError.INVALID_REQUIRED_ACKS,)),
        *((Refused, advice, (code,)) for code, advice in REFUSALS.items()),
        (
            TransientError,
            "it passes by itself once the brokers are well again: look whether one of them is down",
            tuple(PASSING),
        ),
        (
            Halted,
            "acknowledged messages were lost: were replicas lost, or was unclean.leader.election.enable on?",
            (KafkaError._LOG_TRUNCATION,),
        ),
        (OffsetOutOfRange, "the log does not hold it", (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)),
    )
    for code in codes
}


def failure(error: KafkaError, doing: str, access: str = "", *, sent: Sequence[ExternalRecord] = ()) -> FrameworkError:
    """Return our error for one of Kafka's. ``doing`` begins its text. What is not known may pass by itself: try again.

    ``access`` is what a user needs for it, as "Write on topic x". ``sent``: the records of which one was refused.
    """
    code = _cause(error)
    unknown = (LogAway, "is the broker up?") if error.code() in AWAY else (TransientError, _UNKNOWN)
    kind, advice = _ADVICE.get(code, unknown)
    said = f"{error.str()} ({error.name()}): {advice.format(access=access or _ACCESS.get(error.code()))}"
    if kind is not Refused:
        return kind(f"{doing}: {said}")
    record = guilty(code, sent)
    if record is None:
        return Refused(f"{doing}: {said}", code=HaltCode.RECORD_REFUSED)
    message = record.value if record.key is None else None  # the job's own have no keys
    text = f"{doing}: {told(record)}: {said}"
    return Refused(text, code=HaltCode.RECORD_REFUSED, partition=record.partition, message=message or b"")


def _cause(error: KafkaError) -> int:
    """Return the error's code; where librdkafka stopped rather than leave a gap, that of the reason in its text."""
    if error.code() == KafkaError._GAPLESS_GUARANTEE:
        return next((code for code in _ADVICE if KafkaError(code).str() in error.str()), error.code())
    return error.code()


def failed(
    exception: KafkaException, doing: str, access: str = "", *, sent: Sequence[ExternalRecord] = ()
) -> FrameworkError:
    """Return our error for the error inside of an exception."""
    return failure(exception.args[0], doing, access, sent=sent)


class Troubles:
    """Errors that a log's clients report asynchronously: the last one is the reason when a call then times out."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        """``scrub`` hides secrets."""
        self._scrub = scrub
        self._config: ClientConfig = {}
        self._logged: dict[str, float] = {}  # when a line was logged last, by its text without numbers
        self.last = ""
        self.refused: KafkaError | None = None  # trying again will not help

    def on_error(self, error: KafkaError) -> None:
        """Take librdkafka's error callback."""
        if not self.last or error.code() != KafkaError._ALL_BROKERS_DOWN:  # what comes before that says why
            self.last = self._scrub(error.str())
        lag_tools_only = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        if _ADVICE.get(error.code(), (TransientError,))[0] is ConfigError and not lag_tools_only:
            self.refused = KafkaError(error.code(), self._scrub(error.str()))  # a service of tokens may repeat a secret

    def log(self, level: int, text: str, *parts: object) -> None:
        """Take a line that librdkafka logs, as a logger would: pass it on without secrets, and not again at once."""
        line = self._scrub(text % parts)
        kind, now = _NUMBER.sub("", line), time.monotonic()
        if now - self._logged.get(kind, -REPEAT_S) >= REPEAT_S:
            if len(self._logged) >= KINDS_MAX:
                self._logged.clear()
            self._logged[kind] = now
            logger.log(logging.DEBUG if _FENCED.search(line) else level, "%s", line)

    def made(self, client: Callable[..., Any], config: ClientConfig) -> Any:
        """Return a client that reports here. Raises ConfigError for an option that librdkafka does not take."""
        self._config = config
        try:
            return client(config | {"error_cb": self.on_error}, logger=self)
        except (KafkaException, ValueError, TypeError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            why = f"{self._scrub(text)}: mend it in the file of --kafka-config"
            raise ConfigError(f"a Kafka option is refused: {why}") from None  # the cause may show secrets

    def no_answer(self, bootstrap: str, waited_s: float, *, diagnose: bool = True) -> FrameworkError:
        """Return the error for a broker that does not answer. To ``diagnose`` may take seconds."""
        found = "" if _is_about_access(self.refused) or not diagnose else diagnosis(bootstrap, self._config)
        if found:
            return ConfigError(f"Kafka at {bootstrap}: {found}")
        if self.refused is not None:
            return failure(self.refused, f"Kafka at {bootstrap}")
        return LogAway(
            f"Kafka at {bootstrap} did not answer for {waited_s:.0f} s{': ' if self.last else ''}{self.last}: "
            "is it up, and is the address right?"
        )


_NUMBER = re.compile(r"\d+")
_FENCED = re.compile("fenced by a newer instance|operation with an old epoch")  # fatal for a client; a move, for us


def _is_about_access(error: KafkaError | None) -> bool:
    """Whether a broker was talked to and refused: then a handshake would find nothing."""
    return error is not None and error.code() != KafkaError._SSL
