"""librdkafka's options: what the protocol relies on is fixed, what makes it fast a default, the rest the user's."""

import re
from collections.abc import Callable, Mapping

from grete.errors import ConfigError
from grete.logs.kafka.client.endings import RETRY_MS, RETRY_MS_MAX
from grete.logs.kafka.client.tls_diagnosis import ClientConfig, ClientOptions, protocol
from grete.ports import READS, Reads
from grete.settings import KiB, MiB

MESSAGE_BYTES_MAX = 2 * MiB  # K1: a frame is 512 KiB; a changelog message of one huge value still fits
# For a request to the coordinator of a group: the longest that the client takes. librdkafka sends one that has timed
# out all the same once the coordinator can be reached again, fails to, and answers it a second time, which aborts the
# process. Who asks waits for less, and gives the client up or ends.
COORDINATOR_S_MAX = 3_600.0

# Option → (its value, why). Another value is refused, not overridden: the person who asked for it must know.
_FIXED = {
    "producer": {
        "acks": ("all", "what is acknowledged must survive a broker"),
        "enable.idempotence": ("true", "a retry must neither repeat nor reorder"),
        "enable.gapless.guarantee": ("true", "a failed message must stop those behind it"),
        "message.timeout.ms": ("0", "a message is given up by the process, never by the client"),
    },
    "consumer": {
        "auto.offset.reset": ("error", "going on elsewhere would be silent loss"),
        "isolation.level": ("read_committed", "what a transaction took back was never there (S1)"),
        "enable.auto.commit": ("false", "positions are part of our own commits"),
        "enable.auto.offset.store": ("false", "positions are part of our own commits"),
        "enable.partition.eof": ("true", "the end of a partition must be known, not guessed"),
    },
}
_DEFAULTS: dict[str, ClientConfig] = {
    "both": {
        "client.id": "grete",
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "reconnect.backoff.max.ms": 1_000,  # 10 s otherwise: long after the broker has come back
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,  # else a small request waits for the answer to the one before it
    },
    "producer": {
        "linger.ms": 0,  # frames are batches already
        "enable.sparse.connections": False,  # else the first send waits 500 ms for a producer id
    },
    "consumer": {
        "fetch.queue.backoff.ms": 10,  # 1 s otherwise: a fast reader idles half of the time
        "fetch.max.bytes": 16 * MiB,
        "max.partition.fetch.bytes": 2 * MiB,
        "queued.max.messages.kbytes": 16 * KiB,  # 64 MiB otherwise, in each worker
    },
}
_ALIASES = {
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
_OURS = {
    "bootstrap.servers": "give it as kafka://host:port",
    "metadata.broker.list": "give the broker as kafka://host:port",
    "group.id": "it is made from the job's name",
    "transactional.id": "each sink task has its own (S1)",
}
_FUNCTIONS = {"logger", "on_delivery"}  # of the Python client, which would take Grete's own instead without a word
_NOT_IN_TRANSACTIONS = {"enable.gapless.guarantee", "message.timeout.ms"}
EMPTY_FETCH_MS = 10, 50  # how long a fetch that finds nothing lasts: a ms for each partition, within these
BATCH_LINGER_MS = 1  # many records at once, one by one: larger batches, and no task waits long

_SECRET = re.compile(r"password|secret|\.key|\.pem|token|jaas|oauthbearer\.config|sasl\.username", re.IGNORECASE)
_HIDDEN = "***"


class Secret(str):
    """A text that a configuration shown by accident, in a traceback with its variables, does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(_HIDDEN)


def hidden(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options, the secret ones as texts that do not show themselves."""
    return {name: Secret(value) if _SECRET.search(name) else value for name, value in options.items()}


def split_options(
    bootstrap: str, group: str, options: ClientOptions, *, reads: Reads = READS
) -> tuple[ClientConfig, ClientConfig, ClientConfig]:
    """Return the configurations of (producer, consumer, admin client). Raises ConfigError on a contradiction.

    An option goes to all of them; one that begins with ``producer.`` or ``consumer.`` to that one only. ``reads``: how
    the consumer will be used. Fetches of many partitions cost much, also those that find nothing or a single record.
    """
    shared: ClientConfig = {"bootstrap.servers": bootstrap}
    own: dict[str, ClientConfig] = {"producer": {}, "consumer": {}}
    for name, value in options.items():
        side, dot, bare = name.partition(".")
        place = own[side] if dot and side in own else shared
        plain = bare if place is not shared else name
        plain = _ALIASES.get(plain, plain)
        if plain in _OURS:
            raise ConfigError(f"Kafka option {name} cannot be set: {_OURS[plain]}")
        if (plain.endswith("_cb") or plain in _FUNCTIONS) and plain != "oauth_cb":
            raise ConfigError(f"Kafka option {name} cannot be set: it takes a function, and options here are texts")
        if not _refuse_contradiction(name, plain, value):
            place[plain] = Secret(value) if _SECRET.search(plain) else value
    fixed = {side: {name: value for name, (value, _) in entries.items()} for side, entries in _FIXED.items()}
    both = _DEFAULTS["both"]
    producer = both | _DEFAULTS["producer"] | shared | own["producer"] | fixed["producer"]
    least, most = EMPTY_FETCH_MS  # a seek waits for the fetch that is under way
    waits: ClientConfig = {"fetch.wait.max.ms": min(max(least, reads.partitions), most)}
    if reads.late_ms >= least:  # a fetch returns with all that has come by then, and not with the first record
        waits = {"fetch.wait.max.ms": min(max(least, reads.partitions), most, reads.late_ms), "fetch.min.bytes": MiB}
    consumer = both | _DEFAULTS["consumer"] | waits | shared | own["consumer"] | fixed["consumer"] | {"group.id": group}
    for config in (producer, consumer):
        _refuse_half_security(config)
        _refuse_no_token(config)
    return producer, consumer, both | shared


def _refuse_half_security(config: ClientOptions) -> None:
    """Raise ConfigError for options of a security protocol that is not the one asked for: they would do nothing."""
    chosen = protocol(config)
    if chosen not in {"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"}:
        return  # librdkafka says so; the text may be a misplaced secret
    for prefix in ("sasl", "ssl"):
        unused = [name for name in config if name.startswith(f"{prefix}.")]
        if unused and prefix not in chosen:
            raise ConfigError(
                f"Kafka option {unused[0]} does nothing under security.protocol = {chosen}: set security.protocol to "
                f"{'SASL_SSL' if prefix == 'sasl' else 'SSL or SASL_SSL'}, or leave it out"
            )


def _refuse_no_token(config: ClientOptions) -> None:
    """Raise ConfigError for tokens that nothing makes: the client would wait for the first of them without a word."""
    mechanism = config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))
    if "oauth_cb" not in config and str(mechanism).upper() != "OAUTHBEARER":
        return
    by_itself = str(config.get("sasl.oauthbearer.method", "")).lower() == "oidc"
    unsecured = str(config.get("enable.sasl.oauthbearer.unsecure.jwt", "")).lower() == "true"
    if "oauth_cb" in config or not (by_itself or unsecured):
        raise ConfigError(
            "nothing makes the tokens of OAUTHBEARER: set sasl.oauthbearer.method to oidc, with "
            "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret. A "
            "function that makes them (oauth_cb) cannot be given"
        )


def batching(producer: ClientOptions) -> ClientConfig:
    """Return the configuration of a producer of many small records, made from that for frames."""
    return {**producer, "linger.ms": producer["linger.ms"] or BATCH_LINGER_MS}


def transactional(producer: ClientOptions, transactional_id: str) -> ClientConfig:
    """Return the configuration of a producer that writes in transactions, made from the plain producer's.

    A transaction fails as a whole, at its time-out at the latest, so nothing in it must outlast that or stop the rest.
    """
    own = {name: value for name, value in batching(producer).items() if name not in _NOT_IN_TRANSACTIONS}
    return (
        own
        | {"retry.backoff.ms": RETRY_MS, "retry.backoff.max.ms": RETRY_MS_MAX}
        | {"transactional.id": transactional_id}
    )


def _refuse_contradiction(name: str, plain: str, value: object) -> bool:
    """Return whether the option is fixed, to just this value. Raises ConfigError if it is fixed to another."""
    for entries in _FIXED.values():
        if plain in entries:
            fixed, why = entries[plain]
            if {"-1": "all"}.get(str(value).lower(), str(value).lower()) != fixed:
                raise ConfigError(f"Kafka option {name} = {value}: must be {fixed}: {why}; leave it out")
            return True
    return False


def scrubber(options: ClientOptions) -> Callable[[str], str]:
    """Return the function that hides the values of secret options in a text."""
    secrets = sorted((str(value) for name, value in options.items() if _SECRET.search(name)), key=len, reverse=True)

    def scrub(text: str) -> str:
        for secret in secrets:
            if secret:
                text = text.replace(secret, _HIDDEN)
        return text

    return scrub
