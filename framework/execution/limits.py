"""The bounds of a running task that are no settings, each with its reason. Bounds in bytes and times are a user's."""

# --- how often a driver looks at what costs a round trip on Kafka ---

OPEN_CHECK_MS = 250  # whether a transaction that hides rows of a table has ended: it takes two round trips
END_CHECK_MS = 100  # after an external batch: whether more is there, which is of no use in a stream
LATE_MS = 10.0  # until what the log has, and does not show yet, is read again
AGAIN_MS = 5  # between two looks at consumers while they are behind: one round trip for every partition
REPORTED_PARTS = 4  # a consumer reports its position when it has gone on this part of what producers may be ahead
REPORTED_MS = 5_000  # and if it has gone on at all: what lag tools see is no older, as with any consumer
LAG_PER_PRODUCER = 25  # messages: a second of markers, or what an idle source sends until its consumer has reported it
GIVE_WAY_ROWS = 256  # of an input, between two looks whether one of a higher priority has brought something: some ms
LOOK_MS = 1_000  # between two looks where a partition of outputs ends, or what is held and asked for
ASK_PARTS = 4  # a task that holds this part of its bound asks for a checkpoint: three more may come until it is closed
CALLS_MS = 2.0  # between two looks whether calls have returned: each costs some 50 µs, and a call takes longer
WAIT_MS_MAX = 20.0  # between two looks at a sink's step that takes long

# --- records between two checkpoints, exactly once ---

LATE_PARTS = 40  # of a checkpoint interval: a fetch lasts one of them, so that many records come at a time

GATHERED_PARTS = 20  # of a checkpoint interval: outputs leave after one of them, so the last ones are few
GATHERED_MS_MAX = 50  # the tasks behind work all the time, and not in one go when the checkpoint closes
GATHERED_ROWS = 256  # of input; more at a time comes to a task that is behind
GATHERED_BATCH_PARTS = 4  # of a batch of input: a message of outputs is no larger than without this

# --- the changelog ---

REQUEST_MS = 50  # between two checkpoints that code asks for: with each record it would write more commits than data
MESSAGE_BYTES_MAX = 256 * 1024  # of one data message: small against a broker's limit of 1 MiB, large for its header
SLICE_KEYS = 1_000  # of one data message: to encode them takes a millisecond or two, in which nothing else is done
REWRITE_SHARE = 1.1  # bytes rewritten for each byte appended: above 1, a round ends even if keys always come before it
DELETE_SHARE = 4  # bytes of deletes for each byte appended, on top: what expires is gone sooner than as much comes
REWRITE_IDLE_BYTES = 64 * 1024  # of commit messages alone, after which a checkpoint without changes rewrites, too

# --- a standby ---

STANDBY_LOOK_MS = 5_000  # between two looks where the changelog ends, while nothing comes: one round trip
STANDBY_WRITE_BYTES = 1 << 20  # of data messages that go into the store in one write, with their changelog position
STANDBY_LOAD_BYTES = (
    1 << 25
)  # of larger checkpoints that are loaded before their position is written: a file, as a restore
STANDBY_POSITION_MS = 1_000  # after which the position is written, though more is there: a kill costs no more than this

# --- event time ---

EVERY_MS = 5  # between two watermarks, or a ms for each partition: more often costs more than it brings
PER_CHECKPOINT = 20  # watermarks at most: what they lead to leaves the job with its checkpoint

GONE_TIMERS_MIN = 1_000  # in the heap: fewer of them cost 100 KB, and a new heap for them some of each batch
MOVED_TIMERS = 1_000  # to a new heap, behind a batch or before a freeze: less than a millisecond
AGAIN_TIMERS = 10_000  # in a row, each set by the one before for a time that had fired: such a row never ends
FOLLOWING_TIMERS = 100_000_000  # in a row that goes on in equal steps: they take hours, and no record comes meanwhile
FIRED_TIMERS = 1_000  # by the wall clock, between two batches: after an outage they are not one checkpoint
SLICE_TIMERS = 1_000  # by event time, between two looks at commits and stops: some ten ms of a small on_timer
WALL_LOOK_MS = 1_000  # between two looks at the wall clock while a timer waits for it: someone may set it

# --- what inputs remember to drop duplicates ---

CLEAN_ONE_IN = 32  # new keys, of which one looks for old ones: a scan's beginning costs as much as some dozen of rows
CLEAN_KEYS = 128  # looked at by it, four for each new key: so by reckoning a third more than the horizon's are kept

# --- progress of deterministic tasks ---

ALONE_MAX = 4  # partitions of a task's streams to which it sends progress at once, and alone
PACE_MIN, PACE_MAX = 4, 10  # intervals of progress that is announced to more: below, messages cost more than records
PACED_PARTITIONS = 7  # to which it is announced once an interval: so the messages of a process are as many a second


def progress_pace_ms(partitions: int, interval_ms: int) -> int:
    """Return the pace at which progress is announced to that many partitions; 0: it is sent each time at once."""
    if partitions <= ALONE_MAX:
        return 0
    return interval_ms * min(max(PACE_MIN, partitions // PACED_PARTITIONS), PACE_MAX)


# --- outputs of a deterministic task that are made again ---

KEPT = 4_096  # records made again that are kept to name the one that differs
CHECKS_MAX = 1_024  # digests of one partition that a commit holds: 12 KiB of a message that a broker takes up to 1 MiB
ROWS_MAX = 100_000  # from the end of a partition that are searched for the record that differs

# --- what these have to be to one another ---

assert CALLS_MS < WAIT_MS_MAX  # a sink that takes long does not hold up the calls of records
assert REWRITE_SHARE > 1 < DELETE_SHARE  # a round of the rewrite ends, however much is written meanwhile
assert MESSAGE_BYTES_MAX <= STANDBY_WRITE_BYTES <= STANDBY_LOAD_BYTES  # a message is a part of a write, that of a load
assert SLICE_TIMERS < AGAIN_TIMERS < FOLLOWING_TIMERS  # a slice comes to its end before a row is called endless
assert LATE_PARTS > GATHERED_PARTS > 1  # what gathers has left before its checkpoint, and a fetch is shorter than that
assert CLEAN_KEYS > CLEAN_ONE_IN  # more old ids go than new ones come
assert 12 * CHECKS_MAX < MESSAGE_BYTES_MAX  # the digests of a partition fit into a commit message
