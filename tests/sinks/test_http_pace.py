"""A service gets no request before it wants one: by its Retry-After, as a sink and from a call, and by a rate."""

import time
from collections import deque
from email.utils import formatdate
from typing import Any

import pytest

from grete import Call, Http, Input, Job, Output, Record, Task, Topic, utf8
from grete.api.sinks.sink import Owner
from grete.errors import GraphError, TransientError
from grete.execution.calls.shared import shared_calls
from grete.execution.limits import SINK_WAIT_MS_MAX
from grete.sinks.http import HttpSink
from tests.execution.harness import Rig
from tests.sinks.service import serving

LINES = Topic("lines", key=utf8, value=utf8)


def posting(url: str, partitions: int = 1, **http: Any) -> Job:
    """Return a job that posts lines."""

    class Posts(Task):
        lines = Input(LINES)
        out = Output(Http(url, utf8, **http))

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, record.value)

    return Job("posting", stages=[Posts], partitions=partitions)


@pytest.mark.parametrize(
    ("retry_after", "wait_ms"),
    [("7", 7_000), ("0", 200), ("", 200), ("soon", 200), ("-5", 200), ("999999", SINK_WAIT_MS_MAX)],
)
def test_the_next_request_is_as_late_as_the_service_wants(retry_after: str, wait_ms: int) -> None:
    """The own back-off is the least; an hour is the most, whatever a service says."""
    with serving() as service:
        service.faults, service.retry_after = [429], retry_after
        rig = Rig(posting(service.url))
        rig.rows("lines", [(b"k", b"a", 1)])
        rig.commit()
        outbox = rig.processor.outbox
        assert (len(service.requests), outbox.due_in_ms(0.0)) == (1, wait_ms)
        rig.now_ms = wait_ms - 1
        rig.settle()
        assert len(service.requests) == 1
        rig.now_ms = wait_ms
        rig.settle()
        assert service.bodies == [b"a"]


def test_a_date_is_a_time_to_wait_for() -> None:
    """One that has passed asks for nothing."""
    with serving() as service:
        sink = HttpSink("out", Http(service.url, utf8))
        sink.open(Owner("job", "stage-0", "nonce"))
        sink.begin(1)
        for in_s, least, most in ((3_600, 3_000_000, 3_600_000), (-60, 0, 0)):
            service.faults, service.retry_after = [503], formatdate(time.time() + in_s, usegmt=True)
            with pytest.raises(TransientError, match="has answered 503") as raised:
                sink.write([("out", b"a")])
            assert least <= raised.value.wait_ms <= most
        sink.close()


@pytest.mark.parametrize(("wait_ms", "least_s"), [(300, 0.3), (1 << 40, 0.4)])
def test_a_call_that_is_told_to_wait_is_made_no_earlier(wait_ms: int, least_s: float) -> None:
    """Its time-out is the most that it waits."""
    made: list[float] = []

    def ask(what: str) -> str:
        made.append(time.monotonic())
        if len(made) == 1:
            raise TransientError("come again", wait_ms=wait_ms)
        return what.upper()

    pending = shared_calls().begin(Call(ask, result=utf8, timeout_ms=400), ("a",), {})
    assert pending.result() == "A"
    assert made[1] - made[0] >= least_s


@pytest.mark.parametrize(("partitions", "each_ms"), [(1, 500), (2, 1_000)])
def test_a_rate_is_that_of_the_whole_job(partitions: int, each_ms: int) -> None:
    """Each task of the stage has its share of two requests in a second: one more each time that has passed."""
    with serving() as service:
        rig = Rig(posting(service.url, partitions, per_second=2))
        rig.rows("lines", [(b"k", b"%d" % number, 1) for number in range(3)])
        rig.commit()
        assert service.bodies == [b"0"]
        for count in (1, 2, 3):
            rig.now_ms = count * each_ms - 1
            rig.settle()
            assert len(service.bodies) == count
            assert rig.processor.outbox.due_in_ms(rig.now_ms) == 1
            rig.now_ms += 1
            rig.settle()
        assert service.bodies == [b"0", b"1", b"2"]
        assert rig.processor.outbox._pending.committed == deque()


def test_a_high_rate_is_kept_in_tenths_of_a_second() -> None:
    """A step for each request would cost more than the request."""
    with serving() as service:
        rig = Rig(posting(service.url, 1, per_second=100))
        rig.rows("lines", [(b"k", b"%d" % number, 1) for number in range(25)])
        rig.commit()
        counts = []
        for rig.now_ms in (0, 99, 100, 199, 200):
            rig.settle()
            counts.append(len(service.bodies))
        assert counts == [10, 10, 20, 20, 25]


@pytest.mark.parametrize("per_second", [0, -1, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused(per_second: float) -> None:
    """The declaration of the sink says so."""
    with pytest.raises(GraphError, match="need a number above 0"):
        Http("http://shop.example/", utf8, per_second=per_second)
