"""The sums of payments in Avro: each payment counts once, and what is no Avro of the registry is set aside."""

import pytest

from grete import Topic, bytes_serde, utf8
from grete.testing import Kit

AS_BYTES = Topic("payments", key=utf8, value=bytes_serde)


@pytest.mark.parametrize("seed", range(2))
def test_crashes_change_no_sum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a registry in the process."""
    monkeypatch.setenv("SCHEMA_REGISTRY", "mock://")
    from tasks.registry import AddUp, job, payments, refused, totals

    kit = Kit(job)
    for number in range(10):
        kit.feed(payments, "ann", {"cents": number})
    kit.feed(AS_BYTES, "bob", b'{"cents": 5}')
    kit.run(crashes=3, seed=seed)
    assert kit.state(AddUp.cents) == {"ann": 45}
    assert kit.pairs(totals)[-1] == ("ann", {"cents": 45})
    assert kit.pairs(refused) == [("bob", b'{"cents": 5}')]
