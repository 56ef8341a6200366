"""A schema registry that refuses, or is away: what stops the start, what stops the task, what waits."""

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from grete import DeadLetter, Input, Job, Output, Record, SchemaRegistry, Store, Task, Topic, bytes_serde, int64, utf8
from grete.api.registry import registry_calls
from grete.api.registry.registry_calls import patiently
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError, TransientError
from grete.ports import LogRow
from grete.state.pins.prepare import register_schemas
from grete.testing import Kit
from tests.api.registry_jobs import ORDER, OTHER, V1, V2, Bag, Order, copying
from tests.support.local_batch import run_job
from tests.support.registry import Registry, running

# --- The registry refuses ---------------------------------------------------------------------------------------------


def test_an_incompatible_schema_is_refused_at_the_start(served: Registry, registry: SchemaRegistry) -> None:
    """Before anything is written; the error has the registry's words and a way on."""
    register_schemas(copying(registry.avro(V1))[0])
    register_schemas(copying(registry.avro(V1))[0])  # registering again changes nothing
    assert served.subjects == {"out-value": [1]}
    served.strict.add("out-value")
    with pytest.raises(ConfigError, match=r"out-value of .* as incompatible \(Schema being .*change the schema"):
        register_schemas(copying(registry.avro(OTHER))[0])
    job, source, _ = copying(registry.avro(V1), out=registry.avro(OTHER))
    kit = Kit(job)
    kit.feed(source, "a", {"n": 1})
    with pytest.raises(ConfigError, match="as incompatible"):  # not a dead letter: each record would be one
        kit.run()


def test_a_schema_must_be_there_if_the_job_may_not_register(served: Registry) -> None:
    """And is found if it is."""
    with closing(SchemaRegistry(served.url, register=False)) as readers, closing(SchemaRegistry(served.url)) as owner:
        makers: list[Callable[[SchemaRegistry], Any]] = [
            lambda of: of.avro(V1),
            lambda of: of.json(Order),
            lambda of: of.protobuf(Bag),
        ]
        for make in makers:
            with pytest.raises(
                ConfigError, match=r"out-value of .* does not have the schema .*leave register=False out"
            ):
                register_schemas(copying(make(readers))[0])
            register_schemas(copying(make(owner))[0])
            register_schemas(copying(make(readers))[0])


def test_credentials_are_asked_for_and_not_shown(served: Registry) -> None:
    """By the client's own properties, or in the url."""
    served.user = "ann:geheim"
    good = SchemaRegistry(served.url, client={"basic.auth.user.info": "ann:geheim"})
    in_url = SchemaRegistry(served.url.replace("//", "//ann:geheim@"))
    bad = SchemaRegistry(served.url.replace("//", "//ann:falsch@"))
    with closing(good), closing(in_url), closing(bad):
        for each in (good, in_url):
            assert Topic("hits", key=utf8, value=each.avro(V1)).value.encode({"n": 1}) == b"\0\0\0\0\x01\x02"
        with pytest.raises(ConfigError, match="refuses these credentials") as caught:
            Topic("hits", key=utf8, value=bad.avro(V1)).value.decode(b"\0\0\0\0\x01\x02")
        assert "falsch" not in str(caught.value)


def test_what_cannot_be_is_refused_where_it_is_declared(registry: SchemaRegistry) -> None:
    """A store whose state another system would have to explain; values that are none; schemas that are none."""
    with pytest.raises(ConfigError, match=r"store hits: registry avro\(Hit\) is for a Topic: .*avro\(schema\)"):
        Store("hits", key=utf8, value=registry.avro(V1))
    with pytest.raises(ConfigError, match="is for a Topic"):
        registry.avro(V1).encode({"n": 1})
    with pytest.raises(ConfigError, match=r"subject='both': need one of topic, record, topic-record"):
        SchemaRegistry("http://localhost", subject="both")  # type: ignore[arg-type]  # likewise
    with pytest.raises(ConfigError, match="avro: not a schema"):
        registry.avro({"type": "nothing"})
    with pytest.raises(ConfigError, match="not a JSON schema"):
        registry.json("{")
    with pytest.raises(ConfigError, match="has no JSON schema"):
        registry.json(object())  # type: ignore[call-overload]  # what a user may do
    with pytest.raises(ConfigError, match=r"Unrecognized properties: no\.such"):
        Topic("a", utf8, SchemaRegistry("http://localhost", client={"no.such": 1}).avro(V1)).value.encode({"n": 1})
    headers = SchemaRegistry("http://localhost", schema_id="header")
    with pytest.raises(ConfigError, match="reads the value alone, and its schema id is in a header"):
        Input(Topic("a", utf8, headers.avro(V1)), time=lambda value: int(value["n"]))
    with pytest.raises(ConfigError, match=r'schema_id="payload"'):
        Topic("a", utf8, headers.avro(V1)).value.encode({"n": 1})


def test_one_topic_with_two_schemas_is_noticed(registry: SchemaRegistry) -> None:
    """As with other serdes: equal declarations are one topic."""
    assert Topic("hits", utf8, registry.avro(V1)) == Topic("hits", utf8, registry.avro(V1))
    assert len({Topic("hits", utf8, registry.avro(V1)).value, Topic("hits", utf8, registry.avro(V2)).value}) == 2


def test_a_backfill_reads_and_writes_by_the_registry(registry: SchemaRegistry) -> None:
    """A history of records with schema ids gives the state of the live job; a bad one is its dead letter there, too."""
    orders = Topic("orders", key=utf8, value=registry.avro(ORDER, Order))
    counted = Topic("counted", key=utf8, value=registry.json(Order))
    bad = Topic("bad", key=utf8, value=bytes_serde)

    class Count(Task):
        source = Input(orders, errors=DeadLetter(bad))
        pieces = Store("pieces", key=utf8, value=int64)
        out = Output(counted)

        def process(self, record: Record[str, Order]) -> None:
            self.pieces.put(record.key, self.pieces.get(record.key, 0) + record.value.pieces)
            self.out.send(record.key, record.value)

    values = [orders.value.encode(Order("tea", number)) for number in range(4)] + [b"{}"]
    job, kit = Job("count", [Count]), Kit(Job("count", [Count]))
    rows = [LogRow(offset, 0, 1_000 + offset, b"ann", value, None) for offset, value in enumerate(values)]
    for row in rows:
        kit.feed(Topic("orders", bytes_serde, bytes_serde), row.key, row.value, timestamp=row.timestamp_ms)
    kit.run()
    (result,) = run_job(job, lambda _: iter(rows)).values()
    outside = [(row.partition.topic, row.value) for row in result.external]
    assert sorted(outside) == sorted(
        [("counted", each.value) for each in kit.outputs(Topic("counted", utf8, bytes_serde))] + [("bad", b"{}")]
    )
    (pieces,) = [value for _, key, value in result.state if key == b"ann"]
    assert kit.state(Count.pieces) == {"ann": int64.decode(pieces)} == {"ann": 6}


# --- The registry is away ---------------------------------------------------------------------------------------------


def test_a_short_outage_is_one_line(
    served: Registry, registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The record waits; a second line says that it is over."""
    hits = Topic("hits", key=utf8, value=registry.avro(V1))
    served.failing = [503, 500, 429]
    with caplog.at_level(logging.WARNING, "grete.registry"):
        assert hits.value.encode({"n": 1}) == b"\0\0\0\0\x01\x02"
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith(f"schema registry {served.url} does not answer (Error in the backend datastore")
    assert last == f"schema registry {served.url} answers again"


def test_patience_ends() -> None:
    """After half a minute of pauses that grow, with an error that ends the process and not the record."""
    pauses: list[float] = []

    def call() -> None:
        raise SchemaRegistryError(503, 50301, "away")

    with pytest.raises(TransientError, match=r"has not answered for 30 s .*nothing is lost"):
        patiently("http://registry", call, pause=pauses.append)
    assert pauses[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    assert 30 <= sum(pauses) < 33


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_nothing_is_lost_while_the_registry_is_away(
    served: Registry, registry: SchemaRegistry, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record becomes a dead letter for it: the task ends, and begins again at its last commit."""
    monkeypatch.setattr(registry_calls, "PATIENCE_S", 0.0)
    with closing(SchemaRegistry(served.url)) as owner:
        data = Topic("in", utf8, owner.avro(V1)).value.encode({"n": 1})
    job, _, sink = copying(registry.avro(V1), mode)
    kit = Kit(job)
    kit.feed(Topic("in", utf8, bytes_serde), "a", data)
    for _ in ("while it reads", "while it writes"):
        served.failing = [503]
        with pytest.raises(TransientError, match=r"has not answered .*begins again at its last commit"):
            kit.run()
        assert kit.pairs(sink) == []
    kit.run()
    assert kit.pairs(sink) == [("a", {"n": 1})]
    assert kit.outputs(Topic("bad", utf8, bytes_serde)) == []


def test_an_address_where_nothing_listens_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose server is down."""
    monkeypatch.setattr(registry_calls, "PATIENCE_S", 0.0)
    with running() as gone:
        pass
    with closing(SchemaRegistry(gone.url)) as registry, pytest.raises(TransientError, match="Connection refused"):
        Topic("in", utf8, registry.avro(V1)).value.decode(b"\0\0\0\0\x01\x02")
