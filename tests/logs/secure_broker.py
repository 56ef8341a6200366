"""A broker that asks who comes: TLS with certificates made here, users with SCRAM passwords, and access lists."""

import contextlib
import re
import ssl
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from grete.spark.java import find_java
from grete.testing.broker.jars import jar_broker
from grete.testing.broker.settings import free_port
from tests.logs.guarded_job import job, rejected, sentences, totals
from tests.support.waiting import until

STORE_PASSWORD = "changeit-in-tests"
USER, PASSWORD = "grete-worker", "canary-d41d8cd98f00b204"

_DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "kafka.md"
_ROW = re.compile(r"^\| (Topic|Group|TransactionalId|Cluster) \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)

Entry = tuple[ResourceType, str, AclOperation]  # of an access list


@dataclass
class SecureBroker:
    """A broker's listeners, and a client's options. ``admin`` may do anything: it comes by the plain listener."""

    bootstrap: str  # SASL_SSL, by the address that the certificate names
    other_name: str  # the same listener by a name that the certificate does not have
    tokens: str  # a listener (SASL_PLAINTEXT) that takes any token of OAUTHBEARER, and believes it who comes
    expired: str  # a listener (SSL) with a certificate that is out of date
    plain: str
    certificates: Path
    admin: AdminClient

    def options(self, **changes: str) -> dict[str, str]:
        """Return the options of a client that is let in; an underscore in a name stands for a dot."""
        options = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates / "good.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        return options | {name.replace("_", "."): value for name, value in changes.items()}

    def allow(self, *entries: Entry) -> None:
        """Grant the user these operations; return when the broker knows."""
        for future in self.admin.create_acls([AclBinding(*_access(*entry)) for entry in entries]).values():
            future.result()
        until(lambda: all(self._granted(entry) for entry in entries))

    def forbid(self, entry: Entry) -> None:
        """Take one grant back; return when the broker knows."""
        for future in self.admin.delete_acls([AclBindingFilter(*_access(*entry))]).values():
            assert len(list(future.result())) == 1
        until(lambda: not self._granted(entry))

    def _granted(self, entry: Entry) -> bool:
        return bool(self.admin.describe_acls(AclBindingFilter(*_access(*entry))).result())


def _access(kind: ResourceType, name: str, operation: AclOperation) -> tuple[Any, ...]:
    return kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW


def listed(
    name: str = job.name, stages: tuple[str, str] = ("split", "count"), *, transactional: int = 2
) -> list[Entry]:
    """Return the access that a worker needs by docs/guides/kafka.md, for the job in guarded_job.py.

    ``name``, ``stages``: of another job of two stages; ``transactional`` of them, the last ones, use transactions.
    """
    first, second = stages
    changelogs = [f"{name}.{stage}.changelog" for stage in stages]
    names = {
        "JOB.STAGE.changelog": changelogs,
        "JOB.STAGE.TOPIC.STAGE": [f"{name}.{first}.guarded-words.{second}"],
        "JOB.notes": [f"{name}.notes"],
        "JOB.members": [f"{name}.members"],
        "each external input": [sentences.name],
        "JOB": [name],
        "JOB.STAGE.changelog-PARTITION of stages that write external topics, and of the first (`backfill --outputs`)": [
            f"{changelog}-0" for changelog in changelogs[2 - transactional :]
        ],
        "each external output, each dead letter topic": [totals.name, rejected.name],
    }
    kinds = {"Topic": ResourceType.TOPIC, "Group": ResourceType.GROUP, "TransactionalId": ResourceType.TRANSACTIONAL_ID}
    return [
        (kinds[kind], name, getattr(AclOperation, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation.strip()).upper()))
        for kind, place, operations in _ROW.findall(_DOCUMENT.read_text())
        for name in names[place.strip()]
        for operation in operations.split(",")
    ]


def one_by_one(entries: Iterable[Entry]) -> list[Any]:
    """Return each entry as a parameter; those of the second changelog, which are as those of the first, are wide."""
    return [
        pytest.param(
            entry,
            marks=pytest.mark.prove if entry[1] == f"{job.name}.count.changelog" else (),
            id=f"{entry[2].name.lower()} {entry[1]}",
        )
        for entry in entries
    ]


@contextlib.contextmanager
def secure_broker(directory: Path) -> Iterator[SecureBroker]:
    """Run one, with the one user and no grants. Raises ConfigError where there are no jars (GRETE_KAFKA is no help)."""
    secure, expired, tokens = free_port(), free_port(), free_port()
    places = f",SASL_SSL://127.0.0.1:{secure},EXPIRED://127.0.0.1:{expired},TOKENS://127.0.0.1:{tokens}"
    _key(directory, "good")
    _key(directory, "old", "-startdate", "-10d", "-validity", "1")

    def changed(own: dict[str, str]) -> dict[str, str]:
        own["listeners"] += places
        own["advertised.listeners"] += places
        own["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL,EXPIRED:SSL,TOKENS:SASL_PLAINTEXT"
        for listener, name in (("sasl_ssl", "good"), ("expired", "old")):
            own[f"listener.name.{listener}.ssl.keystore.location"] = str(directory / f"{name}.p12")
            own[f"listener.name.{listener}.ssl.keystore.type"] = "PKCS12"
            own[f"listener.name.{listener}.ssl.keystore.password"] = STORE_PASSWORD
        return own | {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # who comes by the plain listener: the controller, and the tests' admin
        }

    with jar_broker(directory, changed) as (plain, _):
        admin = AdminClient({"bootstrap.servers": plain})
        user = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        for future in admin.alter_user_scram_credentials([user]).values():
            future.result()
        _trust(directory, "good", secure)
        _trust(directory, "old", expired)
        yield SecureBroker(
            f"127.0.0.1:{secure}",
            f"localhost:{secure}",
            f"127.0.0.1:{tokens}",
            f"127.0.0.1:{expired}",
            plain,
            directory,
            admin,
        )


def _key(directory: Path, name: str, *validity: str) -> None:
    """Make NAME.p12, a key with a certificate of its own, with the JDK's keytool: every Java has it, if not by name."""
    keytool = [find_java(), "-XX:TieredStopAtLevel=1", "-m", "java.base/sun.security.tools.keytool.Main"]
    store = ["-keystore", str(directory / f"{name}.p12"), "-storepass", STORE_PASSWORD, "-alias", "broker"]
    pair = ["-genkeypair", "-keyalg", "EC", "-dname", f"CN={name}", "-ext", "SAN=ip:127.0.0.1", *validity]
    subprocess.run([*keytool, *pair, *store], check=True, capture_output=True, timeout=100)


def _trust(directory: Path, name: str, port: int) -> None:
    """Make NAME.pem, what a client trusts a listener by: its own certificate."""
    (directory / f"{name}.pem").write_text(ssl.get_server_certificate(("127.0.0.1", port)))
