"""A broker with TLS, passwords and access lists: a job runs on it, says what is wrong, and shows no secret."""

import logging
import traceback
from collections.abc import Iterator

import pytest

from framework.errors import ConfigError
from framework.logs.kafka import KafkaLog, log
from framework.logs.kafka.failures import Troubles
from framework.logs.kafka.options import split_options
from tests.logs.secure_broker import PASSWORD, SecureBroker, secure_broker

pytestmark = pytest.mark.kafka
CANARY = "canary-8f14e45fceea167a"  # a password that is wrong, and as secret as a right one


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker from the jars, whatever the other tests run on: only there do we make the certificates."""
    directory = tmp_path_factory.mktemp("secure")
    with secure_broker(directory) as broker:
        yield broker


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are given up soon."""
    monkeypatch.setattr(log, "CONNECT_S_MAX", 2.0)


WRONG = {
    "password": ({"sasl_password": CANARY}, r"invalid credentials.*sasl\.password"),
    "user": ({"sasl_username": "nobody-we-know"}, r"invalid credentials.*sasl\.username"),
    "mechanism": ({"sasl_mechanism": "PLAIN"}, r"supported mechanisms: SCRAM-SHA-512.*sasl\.mechanism"),
    "authority": ({"ssl_ca_location": "{certificates}/old.pem"}, r"not trusted.*ssl\.ca\.location"),
    "authority's file": ({"ssl_ca_location": "{certificates}/none.pem"}, r"ssl\.ca\.location"),
    "no TLS": ({"security_protocol": "SASL_PLAINTEXT", "ssl_ca_location": ""}, r"speaks TLS.*security\.protocol"),
    "no password": ({"security_protocol": "SSL"}, r"sasl\.\w+ does nothing.*security\.protocol"),
    "no security": ({"security_protocol": "PLAINTEXT"}, r"does nothing.*security\.protocol"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", WRONG)
def test_a_refused_client_is_told_what_to_set(
    secure: SecureBroker, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who cannot come in gets a ConfigError that names the option, and no password is shown, whatever is printed."""
    changes, expected = WRONG[what]
    options = secure.options(**{name: text.format(certificates=secure.certificates) for name, text in changes.items()})
    options = {name: text for name, text in options.items() if text}
    with pytest.raises(ConfigError, match=f"(?s){expected}") as caught:
        KafkaLog(secure.bootstrap, options)
    shown = caplog.text + str(caught.value) + "".join(traceback.format_exception(caught.value))
    assert not {word for word in (PASSWORD, CANARY) if word in shown}
    assert len(caplog.records) < 20  # librdkafka tries, and complains, twenty times a second


@pytest.mark.usefixtures("impatient")
def test_a_certificate_for_another_name_is_refused(secure: SecureBroker) -> None:
    """A broker reached by a name that its certificate does not have may be another one: refused, with both names."""
    with pytest.raises(ConfigError, match=r"for another name.*localhost.*advertised\.listeners"):
        KafkaLog(secure.other_name, secure.options())


@pytest.mark.usefixtures("impatient")
def test_an_expired_certificate_is_refused(secure: SecureBroker) -> None:
    """A certificate out of date is refused, and named as such: neither option nor password is to blame."""
    options = {"security.protocol": "SSL", "ssl.ca.location": str(secure.certificates / "old.pem")}
    with pytest.raises(ConfigError, match=r"out of date.*expired"):
        KafkaLog(secure.expired, options)


@pytest.mark.usefixtures("impatient")
def test_tls_at_a_plain_port_is_refused(secure: SecureBroker) -> None:
    """Encryption was asked for and is not to be had: never a fall-back to none."""
    with pytest.raises(ConfigError, match=r"does not speak TLS.*security\.protocol"):
        KafkaLog(secure.plain, secure.options())


def test_configurations_do_not_show_their_secrets() -> None:
    """The repr of each client's configuration, as a traceback with variables prints it, hides passwords and keys."""
    options = {"security.protocol": "SASL_SSL", "sasl.password": CANARY, "consumer.ssl.key.password": CANARY}
    assert CANARY not in repr(split_options("host:1", "group", options))


def test_repeated_lines_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Lines of librdkafka's that differ in numbers only are logged once in a while, without secrets."""
    troubles = Troubles(lambda text: text.replace(CANARY, "***"))
    for number in range(1_000):
        troubles.log(logging.ERROR, "%s [%s] %s", "FAIL", f"producer-{number}", f"after {number} ms: {CANARY}")
    assert [record.getMessage() for record in caplog.records] == ["FAIL [producer-0] after 0 ms: ***"]
