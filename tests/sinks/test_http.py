"""A web service as a sink: each output once and in order, whatever fails; its key is the same ever after."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grete import Http, Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8
from grete.api.sinks.sink import Owner
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError, GraphError, Halted, TransientError
from grete.settings import Settings
from grete.sinks.http import HttpSink
from grete.testing import Kit
from tests.sinks.service import Service, serving

LINES = Topic("lines", key=utf8, value=utf8)
OWNER = Owner("job", "stage-0", "nonce")
USER = "me:secret" + "@"  # before the host of a url


@pytest.fixture
def service() -> Iterator[Service]:
    """Yield a service that takes everything."""
    with serving() as made:
        yield made


def sink_of(service: Service, **changed: Any) -> HttpSink:
    """Return an open sink of the output ``out``."""
    sink = HttpSink("out", Http(service.url, utf8, **changed))
    sink.open(OWNER)
    return sink


def posting(url: str, mode: Mode) -> Job:
    """Return a job that counts lines, and posts each count."""

    class Posts(Task):
        lines = Input(LINES)
        counts = Store("counts", key=utf8, value=int64)
        out = Output(Http(url, json(dict[str, int])))

        def process(self, record: Record[str, str]) -> None:
            count = self.counts.get(record.key, 0) + 1
            self.counts.put(record.key, count)
            self.out.send(None, {record.key: count})

    return Job("posting", stages=[Posts], mode=mode)


FAULTS = st.lists(st.sampled_from([200, 200, 500, 503, 429, "cut", "silent"]), max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FAULTS, st.integers(0, 9))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_each_output_is_taken_once_and_in_order(mode: Mode, faults: list[int | str], seed: int) -> None:
    """Through crashes of the task, errors of the service, and answers that never come."""
    with serving() as service:
        service.faults = faults
        kit = Kit(posting(service.url, mode), settings=Settings(checkpoint_interval_ms=50, restart_backoff_ms=1))
        for number in range(12):
            kit.feed(LINES, "k", "x", timestamp=number)
            if number % 4 == 3:
                kit.process()
                kit.advance(60)
        kit.run(crashes=3, seed=seed)
        kit.stop()
        assert service.bodies == [b'{"k":%d}' % n for n in range(1, 13)]


def test_a_request_has_the_key_of_its_output(service: Service) -> None:
    """Job, task, output, the state's own id, checkpoint and number: the next process sends the same one."""
    sink = sink_of(service, headers={"X-Shop": "7"})
    for each in (sink, sink_of(service)):
        assert each.begin(4)
        each.write([("out", b"a"), ("out", b"b")])
        each.commit()
        each.close()
    assert service.taken == [("job/stage-0/out/nonce/4/0", b"a"), ("job/stage-0/out/nonce/4/1", b"b")]
    assert len(service.requests) == 4
    path, headers = service.requests[0]
    assert path == "/outputs?from=grete"
    assert (headers["Content-Type"], headers["X-Shop"]) == ("text/plain; charset=utf-8", "7")


def test_after_trouble_it_goes_on_behind_the_last_answer(service: Service) -> None:
    """An output that was answered in this process is not sent again; the next one is the one that failed."""
    sink = sink_of(service)
    sink.begin(1)
    service.faults = [200, 200, 503]
    rows = [("out", b"%d" % number) for number in range(4)]
    with pytest.raises(TransientError, match=r"has answered 503 to the output with .*/1/2: said why"):
        sink.write(rows)
    sink.open(OWNER)
    assert sink.begin(1)
    sink.write(rows)
    assert service.bodies == [b"0", b"1", b"2", b"3"]
    assert len(service.requests) == 5
    assert sink.begin(2)
    sink.write([("out", b"4")])
    assert not sink.begin(1)
    sink.close()


def test_a_connection_that_the_service_has_ended_is_opened_again(service: Service) -> None:
    """An idle connection ends; the next output is no trouble for that."""
    sink = sink_of(service)
    sink.begin(1)
    sink.write([("out", b"a")])
    service.faults = ["silent"]  # it takes the output and ends the connection: the second request brings the answer
    sink.write([("out", b"b")])
    assert service.bodies == [b"a", b"b"]
    sink.close()


@pytest.mark.parametrize("status", [301, 400, 403, 404, 422])
def test_what_will_not_pass_stops_the_task(service: Service, status: int) -> None:
    """A person must look; the output is still there, and comes first after the repair."""
    sink = sink_of(service)
    sink.begin(1)
    service.faults = [status]
    with pytest.raises(Halted, match=rf"http://127.*/outputs has answered {status} .*: said why: repair the service"):
        sink.write([("out", b"a")])
    sink.write([("out", b"a")])
    assert service.bodies == [b"a"]
    sink.close()


def test_a_service_that_is_not_there_is_tried_again() -> None:
    """Nothing listens at the port."""
    with serving() as service:
        url = service.url
    sink = HttpSink("out", Http(url, utf8))
    sink.open(OWNER)
    sink.begin(1)
    with pytest.raises(TransientError, match="does not answer: ConnectionRefusedError"):
        sink.write([("out", b"a")])


def test_a_secret_comes_from_the_environment_and_is_not_shown(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the url's query nor a header is in a text for people."""
    monkeypatch.setenv("SERVICE", service.url)
    monkeypatch.setenv("TOKEN", "Bearer hush")
    declared = Http("env:SERVICE", json, headers={"Authorization": "env:TOKEN"})
    sink = HttpSink("out", declared)
    sink.open(OWNER)
    sink.begin(1)
    sink.write([("out", b"{}")])
    assert service.requests[0][1]["Authorization"] == "Bearer hush"
    assert (repr(declared), sink.name) == ("Http('env:SERVICE')", "web service env:SERVICE")
    assert "from=grete" not in repr(Http(service.url, json))
    sink.close()
    monkeypatch.delenv("TOKEN")
    with pytest.raises(ConfigError, match="environment variable TOKEN is not set"):
        HttpSink("out", declared)
    monkeypatch.setenv("SERVICE", "ftp://elsewhere")
    with pytest.raises(ConfigError, match="url must be http://host/path"):
        HttpSink("out", Http("env:SERVICE", json))


@pytest.mark.parametrize(
    ("url", "changed", "said"),
    [
        ("shop.example/x", {}, "url must be http://host/path, https://host/path or env:NAME"),
        (f"https://{USER}shop.example", {}, r"Http\('https://shop.example'\): there is a password in the url"),
        ("https://shop.example", {"timeout_ms": 0}, "timeout_ms = 0: need 1 or more"),
        ("https://shop.example", {"headers": {"a b": "c"}}, "header 'a b': need a name without spaces"),
        ("https://shop.example", {"headers": {"a": "c\nd"}}, "header 'a': need a name without spaces, and a value of"),
    ],
)
def test_a_mistake_is_refused_where_it_is_declared(url: str, changed: dict[str, Any], said: str) -> None:
    """Before anything runs."""
    with pytest.raises(GraphError, match=said):
        Http(url, json, **changed)
