"""Store ids and keys that are the runtime's own. They are state like any other: committed, restored and rolled back."""

from grete.api.jobs.graph import RESERVED_STORES

TIMERS, META, OUTBOX = RESERVED_STORES["_timers"], RESERVED_STORES["_meta"], RESERVED_STORES["_outbox"]

STREAM_TIME = b"stream time"  # in META: int64, the event time of the task (E1)
EVENT_TIME = b"event time "  # in META, before a partition's name: what its sources have reached (E1)
FIRING = b"firing"  # in META: int64, timers are due that have not fired; which (grete.execution.task_code.task_time)
PINS = b"store "  # in META, before the id of a user's store
FILES_OWNER = b"files"  # in OUTBOX: an id that tells a task that writes files only from a namesake
WAITING = (b"b", b"v", b"e")  # in OUTBOX, first byte of a key: of outputs that a sink may lack; the others are accounts
TURN = b"turn"  # in META: int64, records without a key sent so far: their partitions take turns


def pin_key(store_id: int) -> bytes:
    """Return the key in META under which the first run writes the name of a user's store."""
    return PINS + b"%d" % store_id
