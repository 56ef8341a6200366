"""The rare situations that a batch of seeds must have met, or its cleanness means nothing (design 3.4)."""

from framework.simulation.faults import FAULTS

BATCH = 1_000  # seeds in which each of these happens at least once

SOMETIMES = {
    "early records": "a record of a later version is put aside (A4)",
    "early records on disk": "the memory for early records is full, one is spilled (A4)",
    "early frames skipped": "the buffer is full, a record is not admitted (A5)",
    "seeks back": "a task goes back for what it skipped (A5)",
    "versions closed by a full layer": "a version is closed before its time because its layer is nearly full (A9)",
    "commits over several versions": "a barrier completes several versions at once (A6)",
    "duplicate markers": "a marker says what is known",
    "known records dropped": "a record is read again, or was appended twice",
    "void records dropped": "a record is dropped that its producer has taken back (R3)",
    "restores ahead of the task": "a producer restarts at a version that the reader has not reached (R4)",
    "stale restores": "a restore is read again, or comes late from a zombie (R4)",
    "roll backs": "a task drops its open layer (R4)",
    "roll backs during a commit": "a task has to finish a commit before it can roll back (R4)",
    "claims that lost a race": "two processes claim the same generation (C1)",
    "claim messages refused by the fence": "the log refuses a claim",
    "commit messages refused by the fence": "the log refuses a zombie's commit (C3)",
    "zombie commits that are void": "a zombie's commit lands, and does not count (C2)",
    "fenced": "a process finds out that it was replaced (C5)",
    "read back": "a commit's offset is not the expected one (C3)",
    "lost acknowledgements of a commit that won": "a process dies without knowing that its commit counts (C4)",
    "lost acknowledgements of a commit that lost": "a process dies without knowing that its commit does not count (C4)",
    "redos over later commits": "a stale store is brought up to date from its pointer (R1)",
    "bootstraps": "a store is filled from the changelog (R1)",
    "bootstraps from within the log": "a store is filled from a round start, not from the genesis (R1, K2)",
    "wipes of what was there": "a store is emptied because its pointer is of no use (R1)",
    "commits with a sweep cursor": "a sweep round takes more than one commit (K2)",
    "changelog trims": "the beginning of a changelog is trimmed (K2)",
    "stream trims": "a stream is trimmed (K3)",
    "repeated messages": "the log holds a message twice",
    "late appends of the dead": "a message of a dead process arrives late",
    "crashes in a restore": "a process dies before it owns its task",
    "crashes between two chunks of a version": "a process dies while it writes a version to its store (A7)",
    "exit 1 by TransientError": "a disk is full, or an acknowledgement is overdue (B1)",
    "graceful stops": "a task ends as asked (R6)",
    **{f"fault: {kind}": "the scheduler's doing" for kind in FAULTS},
}
