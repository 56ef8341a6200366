"""The bounds of a running task that are no settings, each with its reason. Bounds in bytes and times are a user's."""

# --- how often a driver looks at what costs a round trip on Kafka ---

OPEN_TRANSACTION_CHECK_MS = 250  # a table waits for an open transaction: to ask for its end takes two round trips
INPUT_END_CHECK_MS = 100  # after a batch of a topic, before the task asks whether more is there: streams do not need it
READ_AGAIN_MS = 10.0  # the log has a message and does not show it yet: the next read comes after this
BACKPRESSURE_LOOK_MS = 5  # between two looks at consumers that are behind: one round trip for all partitions
POSITION_REPORT_PARTS = 4  # a consumer reports its position each time it has read this part of its producers' lead
POSITION_REPORT_MS = 5_000  # and at least so often while it reads: lag tools see positions as old as any consumer's
LAG_PER_PRODUCER = 25  # messages: a second of markers, or what an idle source sends until its consumer has reported it
GIVE_WAY_ROWS = 256  # of an input, some ms: then the task looks whether an input of higher priority has records
SLOW_LOOK_MS = 1_000  # between two looks at the end of a partition of outputs, or at what tasks hold and ask for
CHECKPOINT_ASK_PARTS = 4  # a task that holds this part of its bound asks for a checkpoint: the rest lasts until then
CALLS_LOOK_MS = 2.0  # between two looks whether calls have returned: a look costs some 50 µs, and a call takes longer
SINK_LOOK_MS_MAX = 20.0  # between two looks at a step of a sink that takes long
SINK_WAIT_MS_MAX = 3_600_000  # that a service may ask for by Retry-After; a longer one is asked again then

# --- records between two checkpoints, exactly once ---

FETCH_PARTS = 40  # a fetch lasts this part of a checkpoint interval, so that many records come at a time

GATHERED_PARTS = 20  # outputs leave after this part of a checkpoint interval, so the last ones are few
GATHERED_MS_MAX = 50  # and after this: the tasks behind work all the time, not in one go when the checkpoint closes
GATHERED_ROWS = 256  # of input: a task that reads more at a time is behind, and sends at once
GATHERED_BATCH_PARTS = 4  # outputs leave at this part of a batch's bytes: a message is no larger than without waiting

# --- the changelog ---

COMMIT_REQUEST_MS = 50  # between two checkpoints that code asks for: one a record would write more commits than data
MESSAGE_BYTES_MAX = 256 * 1024  # of one data message: small against a broker's limit of 1 MiB, large for its header
SLICE_KEYS = 1_000  # of one data message: to encode them takes a millisecond or two, in which nothing else is done
REWRITE_SHARE = 1.1  # bytes rewritten for each byte appended: above 1, a round ends even if keys always come before it
DELETE_SHARE = 4  # bytes of deletes for each byte appended, on top: what expires is gone sooner than as much comes
REWRITE_IDLE_BYTES = 64 * 1024  # of commit messages alone: after so much a checkpoint without changes rewrites, too

# --- a standby ---

STANDBY_LOOK_MS = 5_000  # between two looks where the changelog ends, while nothing comes: one round trip
STANDBY_WRITE_BYTES = 1 << 20  # of data messages that go into the store in one write, with their changelog position
STANDBY_LOAD_BYTES = 1 << 25  # of a larger checkpoint: so much is loaded as a file, as a restore does
STANDBY_POSITION_MS = 1_000  # after this the position is written, though more is there: a kill costs no more than this

# --- event time ---

WATERMARK_MS = 5  # between two watermarks, or a ms for each partition: more often costs more than it brings
WATERMARKS_PER_CHECKPOINT = 20  # at most: what they lead to leaves the job with its checkpoint

GONE_TIMERS_MIN = 1_000  # deleted timers stay in the heap up to here: they cost 100 KB, and a new heap costs time
MOVED_TIMERS = 1_000  # to a new heap, after a batch or before a freeze: less than a millisecond
ENDLESS_TIMERS = 10_000  # in a row, each set by the one before for a time that had fired: such a row never ends
FOLLOWING_TIMERS = 100_000_000  # in a row that goes on in equal steps: they take hours, and no record comes meanwhile
FIRED_TIMERS = 1_000  # by the wall clock, between two batches: after an outage they are not one checkpoint
SLICE_TIMERS = 1_000  # by event time, between two looks at commits and stops: some ten ms of a small on_timer
WALL_LOOK_MS = 1_000  # between two looks at the wall clock while a timer waits for it: someone may set it

# --- what inputs remember to drop duplicates ---

CLEAN_ONE_IN = 32  # new keys, of which one looks for old ones: to begin a scan costs as much as some dozen of rows
CLEAN_KEYS = 128  # that it looks at, four for each new key: so about a third more than the horizon's are kept

# --- progress of deterministic tasks ---

UNPACED_PARTITIONS_MAX = 4  # to no more partitions than these a task sends its progress alone and at once
PACE_INTERVALS_MIN, PACE_INTERVALS_MAX = 4, 10  # between announcements to more: below, they cost more than records
PACED_PARTITIONS = 7  # each 7 add an interval: a process sends as many messages a second for any number


def progress_pace_ms(partitions: int, interval_ms: int) -> int:
    """Return the pace at which progress is announced to that many partitions; 0: it is sent each time at once."""
    if partitions <= UNPACED_PARTITIONS_MAX:
        return 0
    return interval_ms * min(max(PACE_INTERVALS_MIN, partitions // PACED_PARTITIONS), PACE_INTERVALS_MAX)


# --- outputs of a deterministic task that are made again ---

REMADE_KEPT = 4_096  # records made again that are kept, to name the one that differs
REMADE_CHECKS_MAX = 1_024  # digests of one partition in a commit: 12 KiB of a message that may have 1 MiB
REMADE_SEARCH_ROWS_MAX = 100_000  # at the end of a partition: the record that differs is searched for among them

# --- what these have to be to one another ---

assert CALLS_LOOK_MS < SINK_LOOK_MS_MAX  # a sink that takes long does not hold up the calls of records
assert REWRITE_SHARE > 1 < DELETE_SHARE  # a round of the rewrite ends, however much is written meanwhile
assert MESSAGE_BYTES_MAX <= STANDBY_WRITE_BYTES <= STANDBY_LOAD_BYTES  # a message is a part of a write, that of a load
assert SLICE_TIMERS < ENDLESS_TIMERS < FOLLOWING_TIMERS  # a slice comes to its end before a row is called endless
assert FETCH_PARTS > GATHERED_PARTS > 1  # what gathers has left before its checkpoint, and a fetch is shorter than that
assert CLEAN_KEYS > CLEAN_ONE_IN  # more old ids go than new ones come
assert 12 * REMADE_CHECKS_MAX < MESSAGE_BYTES_MAX  # the digests of a partition fit into a commit message
