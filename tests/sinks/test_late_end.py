"""The end of a transaction is asked for twice, and the first request arrives within the next transaction (S1)."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from framework.testing.broker import Broker
from framework.testing.broker.settings import free_port
from framework.testing.late_end import LateEndLine
from tests.sinks.late_end_scene import MODES, Found, LateEndScene
from tests.verification.chaos.cluster import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # a broker of its own

FENCED = 47  # INVALID_PRODUCER_EPOCH


@pytest.fixture(scope="module")
def late(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, LateEndLine]]:
    """Yield a broker, and the line by which the workers reach it."""
    del kafka_broker  # asked for because it says whether jars can be had here
    port = free_port()
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path_factory.mktemp("late") / "kafka", behind=port))
        yield Broker(cluster.bootstrap, "its jars"), stack.enter_context(LateEndLine(port, cluster.outside))


@pytest.mark.parametrize("mode", MODES)
def test_a_late_end_splits_no_transaction(late: tuple[Broker, LateEndLine], mode: str, tmp_path: Path) -> None:
    """S1: killed there or not, whichever half is in the log first: each output once, and no worker ends by it."""
    with LateEndScene(*late, tmp_path, mode) as scene:
        scene.feed()
        scene.outputs()
        answers = [
            scene.attempt(outputs_first=outputs_first, killed=killed)
            for outputs_first, killed in product((False, True), repeat=2)
        ]
        assert scene.found() == Found((), (), ())
        assert (answers, scene.ends) == ([FENCED] * 4, []), scene.log.read_text()[-2_000:]
