"""A broker with TLS, passwords and access lists: a job runs on it, says what is wrong, and shows no secret."""

import base64
import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from grete.errors import ConfigError, ExitCode
from grete.logs import patience
from grete.logs.address import read_options
from grete.logs.kafka import KafkaLog, KafkaReader
from grete.logs.kafka.client.config import split_options
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.members_topic import KafkaMembersTopic
from grete.protocol.ids import TopicPartition
from grete.testing.broker.settings import free_port
from tests.logs.guarded_job import sentences
from tests.logs.secure_broker import PASSWORD, USER, SecureBroker

pytestmark = pytest.mark.kafka
CANARY = "canary-8f14e45fceea167a"  # a password that is wrong, and as secret as a right one


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is told nothing is given up soon. A refusal ends the wait, which may be long where it is."""
    monkeypatch.setattr(patience, "CONNECT_S_MAX", 2.0)


def members(bootstrap: str, options: dict[str, str]) -> KafkaMembersTopic:
    """Look for the members of a job: the first thing that `grete run` does."""
    return KafkaMembersTopic(bootstrap, options, "none-such", patience.Patience(), write=False)


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


@pytest.mark.parametrize("connect", [KafkaLog, KafkaReader.connect, members], ids=["log", "reader", "members"])
@pytest.mark.parametrize("what", WRONG)
def test_a_refused_client_is_told_what_to_set(
    secure: SecureBroker,
    what: str,
    connect: Callable[..., object],
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    """A client without access gets a ConfigError that names the option, and no password is shown in any output."""
    if what == "no TLS":
        request.getfixturevalue("impatient")  # the broker only closes: what it speaks is looked into at the end
    changes, expected = WRONG[what]
    options = secure.options(**{name: text.format(certificates=secure.certificates) for name, text in changes.items()})
    options = {name: text for name, text in options.items() if text}
    with pytest.raises(ConfigError, match=f"(?s){expected}") as caught:
        connect(secure.bootstrap, options)
    shown = caplog.text + str(caught.value) + "".join(traceback.format_exception(caught.value))
    assert not {word for word in (PASSWORD, CANARY) if word in shown}
    assert len(caplog.records) < 20  # librdkafka tries, and complains, twenty times a second


def test_a_certificate_for_another_name_is_refused(secure: SecureBroker) -> None:
    """A broker reached by a name that its certificate does not have may be another one: refused, with both names."""
    with pytest.raises(ConfigError, match=r"for another name.*localhost.*advertised\.listeners"):
        KafkaLog(secure.other_name, secure.options())


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


class TokenService(BaseHTTPRequestHandler):
    """A service of tokens that knows one client."""

    def do_POST(self) -> None:
        """Give a token for the user of the access lists, or refuse the client."""
        client = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        well = client == f"grete:{PASSWORD}"
        self.rfile.read(int(self.headers["Content-Length"]))
        now = int(time.time())
        parts = {"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 600}
        coded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
        answer = json.dumps(
            {"access_token": ".".join(coded) + "."} if well else {"error": f"unknown: {client}"}
        ).encode()
        self.send_response(200 if well else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def token_service() -> Iterator[str]:
    """Yield the address of a token service."""
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenService) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


def with_tokens(service: str, secret: str) -> dict[str, str]:
    """Return the options of a client that gets its tokens there."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": service,
        "sasl.oauthbearer.client.id": "grete",
        "sasl.oauthbearer.client.secret": secret,
    }


def test_a_client_comes_in_with_a_token_of_a_service(guarded: SecureBroker, token_service: str) -> None:
    """It is who the token says, with the rights of that user."""
    with contextlib.closing(KafkaLog(guarded.tokens, with_tokens(token_service, PASSWORD))) as log:
        assert log.partitions(sentences.name) == 1


@pytest.mark.parametrize("away", [False, True])
def test_a_service_of_tokens_that_gives_none_is_named(
    secure: SecureBroker, token_service: str, caplog: pytest.LogCaptureFixture, *, away: bool
) -> None:
    """It refuses the client, and repeats what it was given, or is not there: both are told, without the secret."""
    service = f"http://127.0.0.1:{free_port()}/token" if away else token_service
    said = "Failed to connect" if away else "unknown: grete:"
    with pytest.raises(ConfigError, match=rf"token: .*{said}.*sasl\.oauthbearer\.token\.endpoint\.url") as caught:
        KafkaLog(secure.tokens, with_tokens(service, CANARY))
    shown = caplog.text + "".join(traceback.format_exception(caught.value))
    assert CANARY not in shown


def test_configurations_do_not_show_their_secrets(tmp_path: Path) -> None:
    """The repr of each client's configuration, as a traceback with variables prints it, hides passwords and keys."""
    options: dict[str, str] = {
        "security.protocol": "SASL_SSL",
        "sasl.password": CANARY,
        "consumer.ssl.key.password": CANARY,
    }
    assert CANARY not in repr(split_options("host:1", "group", options))
    (tmp_path / "file").write_text(f"sasl.password={CANARY}")
    options = read_options(tmp_path / "file")
    assert CANARY not in repr(options)
    assert options == {"sasl.password": CANARY}


def test_repeated_lines_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Lines of librdkafka's that differ in numbers only are logged once in a while, without secrets."""
    troubles = Troubles(lambda text: text.replace(CANARY, "***"))
    for number in range(1_000):
        troubles.log(logging.ERROR, "%s [%s] %s", "FAIL", f"producer-{number}", f"after {number} ms: {CANARY}")
    assert [record.getMessage() for record in caplog.records] == ["FAIL [producer-0] after 0 ms: ***"]


@pytest.mark.usefixtures("started_by_exec")  # /proc shows what they were started with
def test_a_job_runs_and_shows_no_secret(guarded: SecureBroker, tmp_path: Path) -> None:
    """A supervised worker runs with the options of a file, and one fails with a wrong password in it.

    Neither password is in a command line, an environment, a file that the run wrote, or a message in a topic.
    """
    config, directory, log_path = tmp_path / "kafka.properties", tmp_path / "job", tmp_path / "out"
    write_options(config, guarded.options())
    arguments = ["tests.logs.guarded_job", f"--directory={directory}", f"--kafka-config={config}"]
    arguments += [f"--log=kafka://{guarded.bootstrap}"]
    grete = [sys.executable, "-m", "grete.cli"]
    with log_path.open("wb") as out:
        with subprocess.Popen([*grete, "up", *arguments], stdout=out, stderr=out) as supervisor:
            try:
                worker_log = directory / "logs" / "worker-0.log"
                while not (worker_log.exists() and "worker started" in worker_log.read_text()):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        assert supervisor.wait(0.05) is None, log_path.read_text()
                shown = processes_of(supervisor.pid)
            finally:
                supervisor.terminate()
        write_options(config, guarded.options(sasl_password=CANARY))
        failed = subprocess.run([*grete, "worker", "--partition=0", *arguments], stdout=out, stderr=out, check=False)
        assert failed.returncode == ExitCode.HALTED
    assert "sasl.password" in log_path.read_text()
    assert b"kafka.properties" in shown
    assert b"grete.worker.life.process_main" in shown  # the worker's
    shown += b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != config)
    shown += b"".join(messages(guarded))
    assert b"worker started" in shown
    assert not {word for word in (PASSWORD, CANARY) if word.encode() in shown}


def write_options(path: Path, options: dict[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))


def processes_of(supervisor: int) -> bytes:
    """Return command lines and environments of a process and its children, as ps shows them."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    places = [Path("/proc") / str(number) for number in (supervisor, *children)]
    return b"".join((place / part).read_bytes() for place in places for part in ("cmdline", "environ"))


def messages(secure: SecureBroker) -> Iterator[bytes]:
    """Yield all that is in the topics of the broker."""
    reader = KafkaLog(secure.plain)
    for topic in reader.topics():
        for number in range(reader.partitions(topic) or 0):
            partition = TopicPartition(topic, number)
            position, end = reader.bounds(partition)
            while position < end and (rows := reader.read(partition, position, 1 << 20)):
                yield from (cell for row in rows for cell in row[3:] if cell)
                position = rows[-1][0] + 1
    reader.close()
