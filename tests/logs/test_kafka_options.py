"""Options of the Kafka client, and what its errors become."""

import re

import pytest

from grete.errors import ConfigError, TransientError
from grete.logs import patience
from grete.logs.kafka import KafkaLog, KafkaReader
from grete.logs.kafka.client.config import scrubber, split_options
from grete.ports import Reads
from grete.testing.broker import Broker
from grete.testing.broker.settings import free_port

pytestmark = pytest.mark.kafka


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address at which nothing is. Who connects nevertheless gives up soon."""
    monkeypatch.setattr(patience, "CONNECT_S_MAX", 0.5)
    return "nowhere:1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("request.required.acks", 0),
        ("producer.enable.idempotence", False),
        ("message.timeout.ms", 30_000),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_uncommitted"),
        ("enable.auto.commit", True),
        ("transactional.id", "x"),
        ("bootstrap.servers", "elsewhere:9092"),
    ],
)
def test_contradictions_are_refused(nowhere: str, name: str, value: str | int) -> None:
    """An option that the protocol relies on cannot be changed: ConfigError, before anything is connected."""
    with pytest.raises(ConfigError, match=rf"Kafka option {name}"):
        KafkaLog(nowhere, {name: value})


@pytest.mark.parametrize(
    ("options", "name", "instead"),
    [
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location", "SSL or SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT", "consumer.ssl.ca.location": "ca.pem"}, "ssl.ca.location", "SSL"),
        ({"security.protocol": "SSL", "sasl.password": "hunter2"}, "sasl.password", "SASL_SSL"),
    ],
)
def test_options_of_a_protocol_that_is_not_asked_for_are_refused(
    nowhere: str, options: dict[str, str | int], name: str, instead: str
) -> None:
    """They would do nothing: who names a certificate takes the connection for one that is encrypted."""
    with pytest.raises(ConfigError, match=rf"{name} does nothing under .*: set security.protocol to {instead}"):
        KafkaLog(nowhere, options)


@pytest.mark.parametrize("options", [{"acks": "all"}, {"acks": -1}, {"enable.idempotence": True}, {"linger.ms": 5}])
def test_agreement_is_accepted(kafka_broker: Broker, options: dict[str, str | int]) -> None:
    """Options that say what we do anyway, or that are free, pass."""
    KafkaLog(kafka_broker.bootstrap, options).close()


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither errors nor reprs show a secret, not even one that librdkafka quotes."""
    monkeypatch.setattr(patience, "CONNECT_S_MAX", 0.5)
    secret = "hunter2-in-the-clear"
    for options in (
        {"sasl.password": secret, "security.protocol": secret},
        {"ssl.key.pem": secret, "security.protocol": "ssl"},
        {
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": secret,
            "security.protocol": "sasl_plaintext",
        },
    ):
        with pytest.raises((ConfigError, TransientError)) as caught:
            KafkaLog(f"127.0.0.1:{free_port()}", options)
        assert secret not in str(caught.value)
        assert secret not in "".join(str(each) for each in caught.traceback)
        assert caught.value.__cause__ is None


def test_an_unknown_option_is_refused() -> None:
    """A misspelt option is a ConfigError that names it."""
    with pytest.raises(ConfigError, match=r"no\.such\.thing"):
        KafkaLog("nowhere:1", {"no.such.thing": "1"})


def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the address and the reason, and asks for another try: it may come up."""
    monkeypatch.setattr(patience, "CONNECT_S_MAX", 1.0)
    address = f"127.0.0.1:{free_port()}"
    for connect in (KafkaLog, KafkaReader.connect):
        with pytest.raises(TransientError, match=rf"Kafka at {address}.*refused"):
            connect(address)


def test_a_secret_that_begins_another_hides_all_of_it() -> None:
    """The longer one goes first: what is left of it would be most of a password."""
    hide = scrubber({"sasl.username": "app", "sasl.password": "app-s3cret", "ssl.key.password": "app-s"})
    assert "s3cret" not in hide("login of app-s3cret, app-s and app")


@pytest.mark.parametrize("more", [{}, {"oauth_cb": "auth:token"}, {"sasl.oauthbearer.method": "default"}])
def test_tokens_that_nothing_makes_are_refused(more: dict[str, str]) -> None:
    """A client would wait for one without a word; what makes tokens is named."""
    options = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"} | more
    with pytest.raises(ConfigError, match=r"set sasl\.oauthbearer\.method to oidc"):
        KafkaLog("nowhere:1", options)


@pytest.mark.parametrize("name", ["error_cb", "logger", "producer.on_delivery", "consumer.stats_cb", "log_cb"])
def test_options_that_take_a_function_are_refused(name: str) -> None:
    """The text of a file is none; where Grete has a function of its own, the option would do nothing."""
    with pytest.raises(ConfigError, match=rf"Kafka option {re.escape(name)} cannot be set: it takes a function"):
        KafkaLog("nowhere:1", {name: "module:function"})


@pytest.mark.parametrize(
    ("reads", "wait_ms", "gathers"),
    [
        (Reads(4), 10, False),
        (Reads(30), 30, False),
        (Reads(300), 50, False),
        (Reads(8, late_ms=25), 10, True),
        (Reads(300, late_ms=25), 25, True),  # no later than that
        (Reads(30, late_ms=5), 30, False),  # shorter than a fetch lasts in any case
    ],
)
def test_a_fetch_gathers_where_its_records_may_be_late(reads: Reads, wait_ms: int, gathers: bool) -> None:
    """It returns with all that has come, no later than told; else with the first record."""
    _, consumer, _ = split_options("b:1", "g", {}, reads=reads)
    assert consumer["fetch.wait.max.ms"] == wait_ms
    assert ("fetch.min.bytes" in consumer) == gathers


def test_a_users_fetch_options_win() -> None:
    """An option that is given goes before ours."""
    _, consumer, _ = split_options("b:1", "g", {"consumer.fetch.min.bytes": "1"}, reads=Reads(8, late_ms=25))
    assert consumer["fetch.min.bytes"] == "1"
