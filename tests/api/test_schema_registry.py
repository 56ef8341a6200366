"""A schema registry: what is written and asked, what a bad record is, and what happens while it is away."""

import datetime as dt
from contextlib import closing
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from grete import Record, SchemaRegistry, Topic, bytes_serde, utf8
from grete.api.tasks.mode import Mode
from grete.errors import SerdeError
from grete.testing import Kit
from tests.api.registry_jobs import ORDER, OTHER, V1, V2, Bag, Order, copying
from tests.support.messages import field, message, message_type
from tests.support.registry import Registry


class Sale(msgspec.Struct):
    item: str
    at: dt.datetime


class Person(pydantic.BaseModel):
    name: str
    tags: set[str] = set()


def test_what_is_written_is_what_others_read(served: Registry, registry: SchemaRegistry) -> None:
    """Confluent's wire format: 0, the id in 4 bytes, the record; the subject is named by topic and end."""
    hits = Topic("hits", key=registry.avro('"string"'), value=registry.avro(V1))
    assert hits.value.encode({"n": 1}) == b"\0\0\0\0\x01\x02"
    assert hits.key.encode("ann") == b"\0\0\0\0\x02\x06ann"
    assert served.subjects == {"hits-value": [1], "hits-key": [2]}
    asked = len(served.asked)
    assert hits.value.decode(hits.value.encode({"n": 2})) == {"n": 2}
    assert served.asked[asked:] == []  # each schema is asked for once


SALE_AT = {"type": "long", "logicalType": "timestamp-millis"}
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "item", "type": "string"}, {"name": "at", "type": SALE_AT}],
}
NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "name", "type": "string"}, {"name": "tags", "type": {"type": "array", "items": "string"}}],
}
FORMATS: dict[str, Any] = {
    "avro": (lambda registry: registry.avro(V1), {"n": 1}),
    "avro of a dataclass": (lambda registry: registry.avro(ORDER, Order), Order("tea", 2)),
    "avro of a struct": (lambda registry: registry.avro(SALE, Sale), Sale("tea", NOON)),
    "avro of a model": (lambda registry: registry.avro(PERSON, Person), Person(name="ann", tags={"a", "b"})),
    "json of a dataclass": (lambda registry: registry.json(Order), Order("tea", 2)),
    "json of a struct": (lambda registry: registry.json(Sale), Sale("tea", NOON)),
    "json of a model": (lambda registry: registry.json(Person), Person(name="ann", tags={"a", "b"})),
    "json": (lambda registry: registry.json('{"title": "Any", "type": "object"}'), {"b": 1, "a": None}),
    "protobuf": (lambda registry: registry.protobuf(Bag), Bag(item="tea", n=2)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_values_of_types_come_back(registry: SchemaRegistry, name: str) -> None:
    """A date stays a date, a set a set."""
    make, value = FORMATS[name]
    serde = Topic("values", key=utf8, value=make(registry)).value
    assert serde.decode(serde.encode(value)) == value


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("name", ["avro of a model", "json of a struct", "protobuf"])
@pytest.mark.parametrize("place", ["payload", "header"])
def test_records_pass_through_a_job_that_crashes(
    served: Registry, name: str, place: Literal["payload", "header"], mode: Mode
) -> None:
    """In each format and mode, each once; a record has its schema id in one place."""
    make, value = FORMATS[name]
    with closing(SchemaRegistry(served.url, schema_id=place)) as registry:
        job, source, sink = copying(make(registry), mode)
        kit = Kit(job)
        for number in range(5):
            kit.feed(source, f"k{number}", value)
        kit.run(crashes=3, seed=1)
        assert sorted(kit.pairs(sink)) == [(f"k{number}", value) for number in range(5)]
        raw = kit.outputs(Topic("out", key=utf8, value=bytes_serde))
        ids = [[each for each in record.headers if each[0] == "__value_schema_id"] for record in raw]
        assert {len(each) for each in ids} == {int(place == "header")}
        assert len({record.value for record in raw}) == 1  # made again, an output is the same
        assert (raw[0].value[:1] == b"\0") == (place == "payload")
    assert list(served.subjects) == ["in-value", "out-value"]


def test_an_id_in_a_header_is_replaced_where_a_record_goes_on(served: Registry) -> None:
    """Else its reader would take the schema of the topic that it came from."""
    with closing(SchemaRegistry(served.url, schema_id="header")) as theirs, closing(SchemaRegistry(served.url)) as ours:
        job, source, sink = copying(theirs.avro(V1), out=ours.avro(V2))
        kit = Kit(job)
        kit.feed(source, "a", {"n": 1}, headers=[("trace", b"7")])

        def process(self: Any, record: Record[str, Any]) -> None:
            self.out.send(record.key, record.value | {"who": "ann"}, headers=record.headers)

        setattr(job.stages[0].task, "process", process)  # noqa: B010  # on a class made here
        kit.run()
        (found,) = kit.outputs(sink)
        assert (found.value, found.headers) == ({"n": 1, "who": "ann"}, (("trace", b"7"),))


def test_subjects_are_named_by_topic_or_record(served: Registry) -> None:
    """The three strategies of Confluent's serializers; a registry has one."""
    for subject in ("topic", "record", "topic-record"):
        with closing(SchemaRegistry(served.url, subject=subject)) as registry:
            topics = [
                Topic("hits", key=utf8, value=registry.avro(V1)),
                Topic("orders", key=utf8, value=registry.json(Order)),
                Topic("bags", key=utf8, value=registry.protobuf(Bag)),
            ]
            for topic, value in zip(topics, ({"n": 1}, Order("tea"), Bag(n=1)), strict=True):
                assert topic.value.decode(topic.value.encode(value)) == value
    assert sorted(served.subjects) == sorted(
        f"{topic}{'-value' if subject == 'topic' else f'-{record}'}" if subject != "record" else record
        for topic, record in (("hits", "web.Hit"), ("orders", "Order"), ("bags", "shop.Bag"))
        for subject in ("topic", "record", "topic-record")
    )


def test_older_records_are_read_by_the_topics_schema(registry: SchemaRegistry) -> None:
    """The id of a record names the schema that wrote it, and Avro resolves it to the topic's own."""
    before, now = (Topic("hits", key=utf8, value=registry.avro(schema)) for schema in (V1, V2))
    assert now.value.decode(before.value.encode({"n": 1})) == {"n": 1, "who": "?"}


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_bad_records_are_set_aside_with_a_plain_error(served: Registry, registry: SchemaRegistry, mode: Mode) -> None:
    """No schema id, one that is unknown, a schema that does not fit, a payload that is none; the rest goes on."""
    job, source, sink = copying(registry.avro(V1), mode)
    kit, raw = Kit(job), Topic("in", key=utf8, value=bytes_serde)
    other = Topic("in", key=utf8, value=registry.avro(OTHER)).value.encode({"page": "/"})
    for key, data in [("json", b'{"n": 1}'), ("none", b""), ("short", b"\0\0\0"), ("unknown", b"\0\0\0\0\x63\x02")]:
        kit.feed(raw, key, data)
    kit.feed(raw, "other", other)
    kit.feed(raw, "cut", other[:5])
    kit.feed(source, "good", {"n": 1})
    kit.run(crashes=2)
    assert kit.pairs(sink) == [("good", {"n": 1})]
    letters = {
        each.key: (dict(each.headers)["grete.error"] or b"").decode()
        for each in kit.outputs(Topic("bad", utf8, bytes_serde))
    }
    assert "no schema id: its bytes begin with 0x7b, not with 0" in letters["json"]
    assert "no schema id: its bytes are none" in letters["none"]
    assert "no schema id: it has 3 bytes, and the id alone takes 5" in letters["short"]
    assert f"its schema is not in schema registry {served.url}: Schema not found" in letters["unknown"]
    assert "No default value for field n in web.Hit" in letters["other"]
    assert "Expecting data framing" in letters["cut"]
    assert all(text.startswith("SerdeError: ") for text in letters.values())


def test_a_value_that_does_not_fit_is_the_tasks_error(registry: SchemaRegistry) -> None:
    """It names serde and value."""
    hits = Topic("hits", key=utf8, value=registry.avro(V1))
    with pytest.raises(SerdeError, match=r"serde registry avro\(Hit\) cannot encode dict .*'m': 1"):
        hits.value.encode({"m": 1})
    orders = Topic("orders", key=utf8, value=registry.json(Order))
    with pytest.raises(SerdeError, match="cannot encode int 3: TypeError: need a Order"):
        orders.value.encode(3)  # type: ignore[arg-type]  # what a user may do


def test_maps_of_messages_have_one_order(registry: SchemaRegistry) -> None:
    """The order in which the entries were put does not show."""
    entry = message_type("CountsEntry", field(1, "key", "string"), field(2, "value"), map_entry=True)
    kind = message(field(1, "counts", ".shop.Counts.CountsEntry", repeated=True), name="Counts", inner=[entry])
    serde: Any = Topic("maps", key=utf8, value=registry.protobuf(kind)).value
    counts = {f"field-{number}": number for number in range(20)}
    one, two = kind(counts=counts), kind(counts=dict(reversed(counts.items())))
    assert one.SerializeToString() != two.SerializeToString()
    assert serde.encode(one) == serde.encode(two)
    assert serde.decode(serde.encode(one)) == one
