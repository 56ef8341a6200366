"""A service that says when it takes requests again (Retry-After) gets none before: as a sink, and from a call."""

import time
from email.utils import formatdate

import pytest

from grete import Call, Http, Input, Job, Output, Record, Task, Topic, utf8
from grete.api.sinks.sink import Owner
from grete.errors import TransientError
from grete.execution.calls.shared import shared_calls
from grete.execution.limits import SINK_WAIT_MS_MAX
from grete.sinks.http import HttpSink
from tests.execution.harness import Rig
from tests.sinks.service import serving

LINES = Topic("lines", key=utf8, value=utf8)


def posting(url: str) -> Job:
    """Return a job that posts lines."""

    class Posts(Task):
        lines = Input(LINES)
        out = Output(Http(url, utf8))

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, record.value)

    return Job("posting", stages=[Posts])


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
