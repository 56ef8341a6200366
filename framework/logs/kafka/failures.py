"""What Kafka's errors mean to us, and what to do about them."""

import logging
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from framework.errors import ConfigError, FrameworkError, Halted, OffsetOutOfRange, TransientError

logger = logging.getLogger("grete.kafka")
logger.addFilter(lambda record: "enable.gapless.guarantee is experimental" not in record.getMessage())

_ADVICE: dict[int, tuple[type[FrameworkError], str]] = {
    code: (kind, advice)
    for kind, advice, codes in (
        (
            ConfigError,
            "the broker refuses who we are: check the options sasl.* and ssl.*",
            (
                KafkaError._AUTHENTICATION,
                KafkaError.SASL_AUTHENTICATION_FAILED,
                KafkaError.UNSUPPORTED_SASL_MECHANISM,
                KafkaError._SSL,
            ),
        ),
        (
            ConfigError,
            "no permission: grant this user the access that docs/kafka.md lists",
            (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.GROUP_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ),
        ),
        (
            ConfigError,
            "there is no such topic or partition: create it first",
            (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError._UNKNOWN_PARTITION,
            ),
        ),
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
            Halted,
            "too large for the topic or the client: raise the topic's max.message.bytes, the option message.max.bytes",
            (KafkaError.MSG_SIZE_TOO_LARGE,),
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


def failure(error: KafkaError, doing: str) -> FrameworkError:
    """Return our error for one of Kafka's. ``doing`` begins its text. What is not known passes by itself: try again."""
    kind, advice = _ADVICE.get(error.code(), (TransientError, "is the broker up?"))
    return kind(f"{doing}: {error.str()} ({error.name()}): {advice}")


def failed(exception: KafkaException, doing: str) -> FrameworkError:
    """Return our error for the error inside of an exception."""
    return failure(exception.args[0], doing)


class Troubles:
    """What the clients of one log report on the side: the last error is the reason when a call then times out."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        """``scrub`` hides secrets."""
        self._scrub = scrub
        self.last = ""
        self.refused: KafkaError | None = None  # trying again will not help

    def heard(self, error: KafkaError) -> None:
        """Take librdkafka's error callback."""
        self.last = self._scrub(error.str())
        if _ADVICE.get(error.code(), (TransientError,))[0] is ConfigError:
            self.refused = error

    def made(self, client: Callable[..., Any], config: dict[str, Any]) -> Any:
        """Return a client that reports here. Raises ConfigError for an option that librdkafka does not take."""
        try:
            return client(config | {"error_cb": self.heard}, logger=logger)
        except (KafkaException, ValueError, TypeError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise ConfigError(f"a Kafka option is refused: {self._scrub(text)}") from None  # the cause may show secrets

    def no_answer(self, bootstrap: str, waited_s: float) -> FrameworkError:
        """Return the error for a broker that does not answer."""
        if self.refused is not None:
            return failure(self.refused, f"Kafka at {bootstrap}")
        return TransientError(
            f"Kafka at {bootstrap} did not answer for {waited_s:.0f} s{': ' if self.last else ''}{self.last}: "
            "is it up, and is the address right?"
        )
