"""The bounds that the core holds: those of the job's settings (grete.settings has the reasons), then its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that the core needs."""

    checkpoint_interval_ms: int
    early_memory_bytes_max: int
    early_bytes_max: int
    uncommitted_state_bytes_max: int
    changelog_retention_ms: int
    checkpoint_ahead_ms: int
    progress_interval_ms: int = 5
    time_lease_ms: int = 200
    untrimmed_bytes_max: int = 1 << 28
    idle_checkpoint_interval_ms: int = 0


# messages of a changelog's end that a restore searches for a commit that names the last complete rewrite round; a
# commit has a data message for each 1,000 keys, so there is one nearly always. If there is none, it reads the whole one
TAIL = 256
ROUNDS_MAX = 32  # round starts remembered over the history: a trim is late by at most a 32nd of it

# Evidence before a partitioner is pinned: a chance of 1 in 4096 to take a partitioner of the producer's own for one of
# the two. More would leave inputs with few keys unjudged: a task sees only the keys of its own partition.
BITS_MIN = 12

# --- aligned mode ---

# A source sends at most this part of what a task may hold between two markers, as the task may make more of it. Each
# time that a task asks for a checkpoint, half as much: down to this part
SENT_PARTS, SENT_PARTS_MAX = 8, 1_024
SENT_RECORD_BYTES = 200  # of a record sent, beside its bytes: what a task that makes a record of it holds

# --- deterministic mode ---

PART_BYTES_MIN = 1 << 19  # of an open write batch: to send less takes some ms, in which no output leaves
REST = 3  # between two commits, at least this many times as long as one took: input decisions wait for commits
REST_MS_MAX = 10_000  # of that: a commit may have waited for a log that was away for an hour
BATCHES_MAX = 32  # on their way: processing need not wait for the log, nor each input decision for an append of its own
GATHERED = 16  # batches of a sink whose input is full (about 1 MiB): a transaction costs as much for one as for many
IDLE_US = 1_000_000  # µs without a record, after which a source emits progress messages less often:
IDLE_INTERVALS, IDLE_AHEAD = 4, 5  # one in this many intervals, and this many ahead: the next one comes in time
PROMPTED_INTERVALS = 10  # intervals without a message, of a source that is told when a task waits for one
