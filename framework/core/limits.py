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


# A restore looks for a commit that names the last complete rewrite round among the last messages of a changelog. A
# commit has a data message for each 1,000 keys, so nearly always one is there. If none is, the whole changelog is read
TAIL_MESSAGES = 256
REWRITE_ROUNDS_MAX = 32  # starts of rounds that a commit remembers: a trim is late by a 32nd of the history at most

# Evidence before a partitioner is pinned: a chance of 1 in 4096 to take a partitioner of the producer's own for one of
# the two. More would leave inputs with few keys unjudged: a task sees only the keys of its own partition.
EVIDENCE_BITS_MIN = 12

# --- aligned mode ---

# A source sends at most this part of what a task may hold between two markers, as the task may make more of it. Each
# time that a task asks for a checkpoint, half as much: down to this part
SENT_PARTS, SENT_PARTS_MAX = 8, 1_024
SENT_RECORD_BYTES = 200  # a task that makes a record of each one sent to it holds so much beside the bytes

# --- deterministic mode ---

FREEZE_PART_BYTES_MIN = 1 << 19  # a smaller part of a write batch is not worth it: sending it takes ms without outputs
COMMIT_REST_FACTOR = 3  # input decisions wait for commits: the next one waits this many times what the last took
COMMIT_REST_MS_MAX = 10_000  # at the latest after this: the last one may have waited an hour for a log that was away
SOURCE_BATCHES_MAX = 32  # on their way at a time: no batch waits for the log, and several decisions share an append
GATHERED_BATCHES = 16  # about 1 MiB of a full input leave together: a transaction costs as much for one as for many
IDLE_AFTER_US = 1_000_000  # a source without a record for this long emits progress messages less often:
IDLE_INTERVALS, IDLE_AHEAD = 4, 5  # one in this many intervals, and this many ahead: the next one comes in time
PROMPTED_INTERVALS = 10  # a source that is told when a task waits for it sends one in this many intervals
