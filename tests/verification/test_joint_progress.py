"""Worlds in which the deterministic tasks of a process announce their progress together (D1).

`make simulate SEEDS=81000000..81001000` has more: a sixth of them are of this form.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from grete.protocol.control import decode_joint_progress
from grete.protocol.envelope import MessageType
from grete.protocol.ids import TopicPartition
from tests.verification.simulation import run
from tests.verification.simulation.connection import SimLog
from tests.verification.simulation.fault_plan import FAULTY, HOURS, Fault
from tests.verification.simulation.plan import World
from tests.verification.simulation.run import run_seed
from tests.verification.simulation.world import make_plan

pytestmark = pytest.mark.check


@pytest.mark.parametrize(
    ("world", "seed"),
    [("deterministic", 81_000_007), ("deterministic", 81_000_039), ("mixed", 81_000_057), ("mixed", 81_000_061)],
)
def test_what_is_announced_together_loses_nothing(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record has its one place and time, whichever process dies with what it held."""
    sent, joint = SimLog.send, list[bytes]()

    def counted(self: SimLog, owner: int, token: int, partition: TopicPartition, value: bytes, **besides: Any) -> None:
        joint.extend([value] if value[0] & 0xF == MessageType.JOINT_PROGRESS else ())
        sent(self, owner, token, partition, value, **besides)

    monkeypatch.setattr(SimLog, "send", counted)
    plan = make_plan(seed, world=world)
    assert plan.joint
    assert plan.faults
    assert str(run_seed(seed, world=world).violation) == "None"
    assert any(len(decode_joint_progress(value)) > 1 for value in joint)


@pytest.mark.parametrize(("world", "seed"), [("deterministic", 81_000_039), ("mixed", 81_000_061)])
def test_hours_of_rest_and_long_outages_are_passed(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is away for several times as long as a send is waited for, and machines sleep for hours."""
    r, plan = random.Random(seed), make_plan(seed, world=world)
    kinds = ["outage", "outage", HOURS, HOURS]
    more = [Fault(1_000 + n, FAULTY * r.random(), kind, r.getrandbits(32)) for n, kind in enumerate(kinds)]
    faults = tuple(sorted((*plan.faults, *more), key=lambda fault: fault.at))
    monkeypatch.setattr(run, "make_plan", lambda *_: replace(plan, faults=faults))
    found = run_seed(seed, world=world)
    assert str(found.violation) == "None"
    assert sum(HOURS in each for each in found.faults) >= 1, found.faults
