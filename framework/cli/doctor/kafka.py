"""The brokers: whether each answers, what they are, what this user may do, and how the job's topics are set."""

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigEntry, ConfigResource, ResourceType

from grete.api.jobs.job import Job
from grete.cli.doctor.report import Report
from grete.cli.doctor.stored import look_at_changelogs
from grete.errors import ConfigError, FrameworkError
from grete.logs.kafka import KafkaReader
from grete.logs.kafka.admin import Topics, identity_of
from grete.logs.kafka.client.config import scrubber, split_options, transactional
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.client.tls_diagnosis import ClientOptions
from grete.logs.kafka.members_topic import members_topic
from grete.logs.kafka.write.job_metadata import metadata_topic
from grete.logs.open_transactions import told
from grete.logs.patience import Patience
from grete.logs.topic_identity import CREATED_AGAIN, created_again
from grete.protocol.ids import TopicPartition
from grete.settings import MiB
from grete.state.read.checkpoints.commits import all_wirings

ANSWER_S_MAX = 10.0  # a broker that is well answers within milliseconds
CONNECT_S_MAX = 3.0  # of one broker
TIMEOUT_MS = 60_000  # transaction.timeout.ms of the client, unless an option says otherwise
AHEAD_MS_MAX = 1_000  # clocks that are kept by NTP differ by less
RETENTION_MS_MIN = 86_400_000  # a job that is stopped over a night must find its input
SIZE_MIN = 1 * MiB  # of a message in a topic outside; Kafka's own default
# A setting of a broker → the release that has it first. The client does not tell the release itself.
SINCE = {
    "group.streams.session.timeout.ms": "4.1",
    "group.share.session.timeout.ms": "4.0",
    "group.consumer.session.timeout.ms": "3.7",
}
Needs = frozenset[AclOperation]
_INTERNAL: Needs = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS}
)


class TopicUse(NamedTuple):
    """A topic as the job uses it. ``partitions``: how many the job needs; None: it takes as many as there are."""

    kind: str
    rights: Needs
    partitions: int | None


def uses(job: Job) -> dict[str, TopicUse]:
    """Return topic → what the job does with it, as docs/guides/kafka.md lists it."""
    topology, found = job.topology(), dict[str, TopicUse]()
    for stage in topology.stages:
        for topic in topology.externals_of(stage.ordinal):
            broadcast = topic in topology.broadcast.get(stage.ordinal, ())
            found[topic] = TopicUse("input", frozenset({AclOperation.READ}), None if broadcast else job.count_of(topic))
    for stage in (each for each in topology.stages if each.partitions):
        found[topology.changelog(stage.ordinal)] = TopicUse("changelog", _INTERNAL, stage.partitions)
    for stream in topology.streams:
        found[stream.topic] = TopicUse("stream", _INTERNAL, stream.partitions)
    for topic in job.external_sinks():
        before = found.get(topic)
        rights = frozenset({AclOperation.WRITE}) | (before.rights if before else frozenset())
        found[topic] = TopicUse("output" if before is None else before.kind, rights, None)
    found[metadata_topic(job.name)] = TopicUse("metadata", frozenset({AclOperation.READ}), None)
    found[members_topic(job.name)] = TopicUse("members' topic", frozenset({AclOperation.READ, AclOperation.WRITE}), 1)
    return found


class Doctor:
    """Looks at a cluster for one job. It asks and reads; it sends nothing."""

    def __init__(self, report: Report, job: Job, bootstrap: str, options: ClientOptions) -> None:
        self._report, self._job, self._bootstrap = report, job, bootstrap
        self._options = options
        producer, self._consumer, admin = split_options(bootstrap, job.name, options)
        self._troubles = Troubles(scrubber(options))
        self._patience = Patience(ANSWER_S_MAX, ANSWER_S_MAX, say=_silent)
        self._topics = Topics(admin, self._troubles, self._patience)
        self._transactional = transactional(producer, job.name)  # as the job's own
        self._ids: dict[str, str] = {}  # of the topics that are there

    @property
    def _client(self) -> AdminClient:
        return self._topics.client

    def look(self) -> None:
        """Look at brokers, rights, topics and clocks. Raises FrameworkError if no broker answers."""
        reader = KafkaReader(self._bootstrap, self._consumer, self._troubles, self._patience)
        with contextlib.closing(reader) as log:
            self._brokers()
            there = self._look_at_topics()
            self._group()
            self._look_at_log(log, there)
            self._created_again(log, there)

    # --- Brokers ---

    def _brokers(self) -> None:
        nodes = self._client.describe_cluster(request_timeout=ANSWER_S_MAX).result().nodes  # makes no topic by asking
        for broker in nodes:
            where, away = f"broker {broker.id}", _cannot_connect(broker.host or "", broker.port)
            self._report.check(
                "reachable",
                where,
                f"{broker.host}:{broker.port}{away}",
                "every client must reach every broker by its advertised name: correct advertised.listeners, the "
                "network or the names",
                well=not away,
            )
        for broker in nodes[:1]:
            self._settings_of_broker(broker.id)

    def _settings_of_broker(self, number: int) -> None:
        found = self._ask(lambda: self._described(ResourceType.BROKER, str(number)))
        if isinstance(found, str):
            self._report.ok("broker version", f"broker {number}", f"not known: {found}")
            return
        since = next((release for name, release in SINCE.items() if name in found), None)
        value = f"{since} or newer, by its settings" if since else "older than 3.7, by its settings"
        self._report.ok("broker version", f"broker {number}", value)
        limit = int(found["transaction.max.timeout.ms"].value)
        wanted = int(self._transactional.get("transaction.timeout.ms", TIMEOUT_MS))
        self._report.check(
            "transaction timeout",
            f"broker {number}",
            f"transaction.max.timeout.ms = {limit:,}, the job asks for {wanted:,}",
            "raise transaction.max.timeout.ms of the brokers, or lower transaction.timeout.ms in the file for "
            "--kafka-config: else no transaction begins",
            well=wanted <= limit,
        )

    def _described(self, kind: ResourceType, name: str) -> Mapping[str, ConfigEntry]:
        resource = ConfigResource(kind, name)
        asked = self._client.describe_configs([resource], request_timeout=ANSWER_S_MAX)
        found: Mapping[str, ConfigEntry] = asked[resource].result()
        return found

    # --- Topics ---

    def _look_at_topics(self) -> set[str]:
        """Look at each topic; return those that are there."""
        wanted, there = uses(self._job), set[str]()
        described = self._client.describe_topics(
            TopicCollection(list(wanted)), include_authorized_operations=True, request_timeout=ANSWER_S_MAX
        )
        for topic, use in wanted.items():
            found = self._ask(described[topic].result)
            if isinstance(found, str):
                self._not_there(topic, use, found)
                continue
            there.add(topic)
            self._ids[topic], _ = identity_of(found)
            self._rights(topic, use, set(found.authorized_operations or ()))
            self._partitions(topic, use, found.partitions)
            self._settings(topic, use)
        topology = self._job.topology()
        for stage in self._job.stages:
            for topic in topology.externals_of(stage.ordinal):
                if stage.ordinal in topology.deterministic and topic in there:
                    self._refused(topic, partial(self._topics.settings.refuse_compacted, topic, stage.name))
        return there

    def _not_there(self, topic: str, use: TopicUse, why: str) -> None:
        if use.kind == "input":
            remedy = "create it; if it is there: grant this user the operations Describe and Read on it"
            self._report.fail("topic", topic, f"this input is missing, or hidden: {why}", remedy)
        elif "authoriz" in why.lower():
            self._report.fail("rights", topic, why, f"grant this user the operations {_named(use.rights)} on {topic}")
        else:
            self._report.ok("topic", topic, f"there is none yet: the first start makes this {use.kind}")

    def _rights(self, topic: str, use: TopicUse, may: set[AclOperation]) -> None:
        lacks = use.rights - may
        self._report.check(
            "rights",
            topic,
            f"lacks {_named(lacks)}" if lacks else _named(use.rights),
            f"grant this user the operations {_named(lacks)} on topic {topic}",
            well=not lacks,
        )

    def _partitions(self, topic: str, use: TopicUse, partitions: list[Any]) -> None:
        count = len(partitions)
        if use.partitions is not None:
            self._report.check(
                "partitions",
                topic,
                f"{count:,}, the job has {use.partitions:,}",
                f"declare partitions={count} in the job, or for tasks that read several in the topic; a job that has "
                "run: grete rescale (docs/guides/upgrade.md)",
                well=count == use.partitions,
            )
        gone = [each.id for each in partitions if each.leader is None or each.leader.id < 0]
        few = [each.id for each in partitions if len(each.isr) < len(each.replicas)]
        if gone:
            self._report.fail("leader", topic, f"partitions {gone} have none", "start the brokers that have them")
        elif few:
            self._report.warn("replicas", topic, f"partitions {few} have replicas that lag", "check the brokers")

    def _settings(self, topic: str, use: TopicUse) -> None:
        if use.kind in ("changelog", "stream"):
            if large := self._refused(topic, partial(self._topics.settings.check, topic)):
                wanted = ",".join(f"{name}={value}" for name, value in large.items())
                self._report.warn(
                    "disk of brokers",
                    topic,
                    f"brokers keep what is trimmed for long: {', '.join(large)}",
                    f"grant AlterConfigs on topic {topic}: the next start sets {wanted}; or kafka-configs.sh --alter "
                    f"--topic {topic} --add-config {wanted}",
                )
            return
        found = self._ask(lambda: self._described(ResourceType.TOPIC, topic))
        if isinstance(found, str):
            self._report.ok("settings", topic, f"not known: {found}")
            return
        if use.kind == "input" and 0 <= int(found["retention.ms"].value) < RETENTION_MS_MIN:
            self._report.warn(
                "retention",
                topic,
                f"retention.ms = {found['retention.ms'].value}",
                "a job that is away for longer loses what it has not read, and halts: set it to some days",
            )
        if AclOperation.WRITE in use.rights and int(found["max.message.bytes"].value) < SIZE_MIN:
            self._report.warn(
                "message size",
                topic,
                f"max.message.bytes = {found['max.message.bytes'].value}",
                "a larger output ends the worker: raise it to 1048588, the default",
            )

    def _refused(self, topic: str, check: Callable[[], dict[str, int] | None]) -> dict[str, int] | None:
        """Let a check of a start look, and return what it does; what it refuses is an error."""
        try:
            found = check()
        except ConfigError as error:
            self._report.failed("settings", topic, error)
            return None
        self._report.ok("settings", topic, "as the job needs them")
        return found

    def _group(self) -> None:
        name = self._job.name
        found = self._ask(lambda: self._topics.group_rights(name, ANSWER_S_MAX))
        may = set() if isinstance(found, str) else found
        if isinstance(found, str) and "authoriz" not in found.lower():
            self._report.ok("rights", f"group {name}", f"not known: {found}")
        elif AclOperation.READ in may:
            self._report.ok("rights", f"group {name}", "Read")
        else:
            self._report.warn(
                "rights", f"group {name}", "lacks Read", f"grant Read on group {name}: lag tools see the job by it"
            )
        self._report.ok("rights", "transactional ids", "not known: Kafka lets no client ask for them without a write")

    # --- What the log holds ---

    def _look_at_log(self, log: KafkaReader, there: set[str]) -> None:
        """Compare clocks by the newest commits, and the positions of the job with what its inputs still hold."""
        newest = 0
        for wiring, last in look_at_changelogs(self._report, self._job, log):
            newest = max(newest, last.append_time_ms)
            for at in last.commit.external:
                self._position(log, wiring.name, TopicPartition(at.topic, at.partition), at.offset)
        inputs = (each for wiring in all_wirings(self._job) for each in wiring.external if each.topic in there)
        for partition, found in log.open_transactions(inputs).items():
            text = told(partition, found)
            self._report.warn("open transaction", str(partition), text, "nothing, if it is over at the next look")
        ahead_ms = newest - time.time_ns() // 1_000_000
        self._report.check(
            "clocks",
            self._bootstrap,
            "not known: nothing is committed yet"
            if not newest
            else f"the newest commit is {ahead_ms:,} ms in the future of this machine"
            if ahead_ms > 0
            else f"the newest commit is {-ahead_ms:,} ms old; a broker that is behind cannot be told from that",
            "keep the clocks of brokers and workers by NTP: ages and checkpoints go by them",
            well=ahead_ms <= AHEAD_MS_MAX,
        )

    def _created_again(self, log: KafkaReader, there: set[str]) -> None:
        """Compare the topics that a start compares with those of the first run."""
        metadata = log.read_metadata(self._job.name)
        for topic, use in uses(self._job).items():
            if topic in there and use.kind in ("input", "changelog", "stream"):
                again = self._ask(partial(created_again, metadata, topic, self._ids[topic]))
                if again is True:
                    value = f"this {use.kind} was deleted and created again since the job first ran (GRETE-H017)"
                    self._report.fail("topic", topic, value, CREATED_AGAIN)

    def _position(self, log: KafkaReader, task: str, partition: TopicPartition, offset: int) -> None:
        start, end = log.bounds(partition)
        if offset > end:
            value = f"{partition}: committed up to {offset:,}, and the topic ends at {end:,}: it is not the one it was"
            self._report.fail("position", task, value, CREATED_AGAIN)
            return
        self._report.check(
            "position",
            task,
            f"{partition}: committed up to {offset:,}, the topic holds {start:,} to {end:,}",
            "what it would read next is gone (GRETE-H015, docs/reference/halts.md): make the retention longer, decide "
            "what is lost, and start the job under another name",
            well=start <= offset,
        )

    @staticmethod
    def _ask(question: Callable[[], Any]) -> Any:
        """Return the answer, or as a text why there is none."""
        try:
            return question()
        except TimeoutError:
            return f"no answer within {ANSWER_S_MAX:.0f} s"
        except (KafkaException, FrameworkError) as error:
            refused = error.args[0]
            return refused.str() if hasattr(refused, "str") else str(error)


def _cannot_connect(host: str, port: int) -> str:
    """Return "" if a connection can be made, else why not."""
    try:
        socket.create_connection((host, port), CONNECT_S_MAX).close()
    except OSError as error:
        return f": {error.strerror or error}"
    return ""


def _named(operations: frozenset[AclOperation] | set[AclOperation]) -> str:
    """Return operations as Kafka's tools write them."""
    return ", ".join(sorted(each.name.replace("_", " ").title().replace(" ", "") for each in operations))


def _silent(_line: str) -> None:
    """Say nothing: the report does."""
