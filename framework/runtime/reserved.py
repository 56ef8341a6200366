"""Store ids and keys that are the runtime's own. They are state like any other: committed, restored and rolled back."""

from framework.api.graph import FIRST_USER_STORE, StageGraph

TIMERS, META, OUTBOX = 0, 1, 2

STREAM_TIME = b"stream time"  # in META: int64, the highest timestamp processed
TURN = b"turn"  # in META: int64, records without a key sent so far: their partitions take turns

_NAMES = {TIMERS: "_timers", META: "_meta", OUTBOX: "_outbox"}  # no user store begins with "_" (check_name)


def store_names(stage: StageGraph) -> dict[int, str]:
    """Return id → name of every store of the stage's tasks, reserved ones too: what a StateStore is opened with."""
    return _NAMES | {store_id: name for name, store_id in stage.store_ids().items()}


def pin_key(store_id: int) -> bytes:
    """Return the key in META under which the first run notes the name of a user's store."""
    assert store_id >= FIRST_USER_STORE, store_id
    return b"store %d" % store_id
