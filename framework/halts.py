"""The code of each halt: what happened, what is safe, and what to do. The reference page is made of this table."""

from enum import Enum
from typing import Self

PAGE = "docs/reference/halts.md"


class HaltCode(Enum):
    """The reasons for which a task, a worker or a command halts. A code keeps its meaning and is never reused."""

    title: str
    happened: str
    safe: str
    remedy: str

    UNNAMED = (
        "GRETE-H000",
        "a halt without a code",
        "Code outside of Grete raised Halted, or an older worker did.",
        "What is committed.",
        "Do what the text says.",
    )
    CONFIGURATION = (
        "GRETE-H001",
        "a wrong configuration",
        "A worker found that a setting, a topic, the job's code or its state do not fit each other.",
        "Everything: the task had not begun, and wrote nothing.",
        "Change what the text names, and start the job again. A restart without a change ends the same way.",
    )
    GIVEN_UP = (
        "GRETE-H002",
        "a worker that always crashes",
        (
            "A worker, or one of its tasks, crashed more than `restarts_max` times in a row without progress in "
            "between, and was given up. Its last error is in the text: a record that the code cannot process, a full "
            "disk, a process that is killed."
        ),
        "What is committed. What came since is processed again by the next start.",
        (
            "Repair the cause of the last error: for a record, the code or the input's `errors=` policy. Then start "
            "the job again."
        ),
    )
    STATE_TOO_LARGE = (
        "GRETE-H003",
        "too much uncommitted state",
        "A task changed more state since its last checkpoint than `uncommitted_state_bytes_max` allows.",
        "What is committed; the changes since are dropped, and made again by the next start.",
        "Raise the setting, lower `checkpoint_interval_ms`, or give the stage more partitions.",
    )
    OUTPUT_TOO_LARGE = (
        "GRETE-H004",
        "too much output in one checkpoint",
        "A task holds more output for its open checkpoint than `uncommitted_state_bytes_max` allows.",
        "What is committed. Nothing of this checkpoint is visible.",
        "Raise the setting, or lower `checkpoint_interval_ms`.",
    )
    RECORD_REFUSED = (
        "GRETE-H005",
        "a record that the broker refuses",
        (
            "A broker refuses an output, a dead letter or a message of the job for its content, and would refuse it "
            "again: its timestamp is too far from the broker's clock (since Kafka 4 an hour ahead), it is larger than "
            "the topic takes, or has no key for a compacted topic."
        ),
        "What is committed. Nothing of the checkpoint with this record is visible.",
        (
            "The text has the record, the topic and the setting that decides. Change the setting, or the code that "
            "makes the record, then start the job again."
        ),
    )
    LOG_LOST = (
        "GRETE-H010",
        "the log has lost messages",
        (
            "Messages that the log had acknowledged are not there: in a changelog, a number is missing or an end is "
            "too early. Usual causes are an unclean leader election, `acks` or `min.insync.replicas` too low, a "
            "topic restored from a backup, or a state directory used with another log."
        ),
        "The log as it is; the task wrote nothing more. Its local state may have more than the log.",
        (
            "Start the job again once all brokers are up: a leader that lagged behind is well then. If it halts "
            "again, restore the topic, or start the job under another name (`grete backfill` builds its state from "
            "the history)."
        ),
    )
    LOG_WENT_BACK = (
        "GRETE-H011",
        "the log went backwards",
        (
            "A partition gave an offset again that was read before, or ends before the task's position: it was "
            "truncated, rewritten or made again."
        ),
        "What is committed; nothing was processed from the changed part.",
        "Start the job again. If it halts again, restore the topic, or start the job under another name.",
    )
    CHANGELOG_DAMAGED = (
        "GRETE-H012",
        "a changelog is damaged",
        (
            "A message in a changelog cannot be decoded, or a commit does not fit its data: digest, count or order "
            "are wrong. Something else wrote there, or bytes were changed on disk or on the way."
        ),
        "The stores on disk up to the last good commit; other tasks. The task wrote nothing more.",
        (
            "`grete changelog verify` says which message. Find who wrote it and take its right to write away. "
            "Restore the topic, or start the job under another name."
        ),
    )
    CHANGELOG_GONE = (
        "GRETE-H013",
        "a changelog has no state to restore",
        (
            "A task's changelog was deleted, trimmed or cut by someone else, or lost with a broker's disk: its inputs "
            "are not at their beginning any more, or its consumers know what it has sent, and there is no complete "
            "state in it."
        ),
        "Inputs and outputs. A worker that still has its local store may have the state.",
        "Restore the topic, or make the state from the history in a job of another name: `grete backfill`.",
    )
    STREAM_DAMAGED = (
        "GRETE-H014",
        "a stream between two stages is damaged",
        (
            "A message between two stages cannot be decoded, or contradicts those before it: a record is missing, "
            "or its producer is not of this stream. Something else wrote there, or the log lost or changed "
            "messages."
        ),
        "What is committed. No record of the damaged part was processed.",
        (
            "Find who wrote to the topic, and take its right to write away. Start again if brokers had failed; if "
            "it halts again, restore the topic, or start the job under another name."
        ),
    )
    INPUT_GONE = (
        "GRETE-H015",
        "input was deleted before it was read",
        (
            "The offset at which a task goes on is not in its input any more: its retention is shorter than the "
            "pause of the job, or records were deleted."
        ),
        "What is committed. The missing records were never processed.",
        "Decide what is lost. Make the retention longer than any pause, and start the job under another name.",
    )
    INPUT_CHANGED = (
        "GRETE-H016",
        "input that must be read again has changed",
        (
            "A deterministic task must process records again that it took in after its last commit, and the topic "
            "does not hold exactly these any more: it was compacted, thinned, or made again."
        ),
        "What is committed. Outputs of the missing records may be visible already.",
        (
            "Restore the records; or set `cleanup.policy=delete` with a long retention, and start the job under "
            "another name."
        ),
    )
    TOPIC_REPLACED = (
        "GRETE-H017",
        "a topic was deleted or created again",
        (
            "A topic that the job reads or writes is gone, or is another one of the same name: offsets mean "
            "something else in it."
        ),
        "What is committed. Nothing was read from the new topic.",
        (
            "Bring the topic back. If that cannot be: for an input, start the job under another name, and it reads its "
            "inputs from the beginning; for an output or JOB.notes, start the job again, and it goes on behind what "
            "was there."
        ),
    )
    TOPIC_GREW = (
        "GRETE-H018",
        "a topic got more partitions",
        "A topic of a running job has more partitions than when it was started, so keys are placed elsewhere.",
        "What is committed. Records in the new partitions were not read.",
        "Stop those that write, and bring the job to the new number by `grete rescale`; docs/guides/upgrade.md.",
    )
    LOG_FILE_DAMAGED = (
        "GRETE-H019",
        "the file of the embedded log is damaged",
        (
            "SQLite found that the file contradicts itself: a disk that fails, a copy made while the job ran, a "
            "file system that does not keep its locks."
        ),
        "Nothing in that file is sure. Files and tables of sinks are.",
        (
            "Restore the file from a copy, or delete the job's directory and start over. Look after the disk; keep "
            "the file on a local one."
        ),
    )
    SPOOL_DAMAGED = (
        "GRETE-H020",
        "the spool of a writer is damaged",
        "The file that keeps records on their way into the log contradicts itself.",
        "What has arrived in the log.",
        "Move the file away. What it still held is not in the log: send it again.",
    )
    BULK_WRITE_IN_DOUBT = (
        "GRETE-H021",
        "a bulk write is in doubt",
        "A backfill or a rescale has rewritten a task's state and has not said whether it counts.",
        "The state before and after it. The task waits for the outcome rather than choosing.",
        "If the command still runs, wait. If it died, run it again, or `grete backfill JOB --resume` or `--abort`.",
    )
    TRIMMED_WHILE_READ = (
        "GRETE-H022",
        "a topic was trimmed while it was read",
        "A reader on Spark was slower than the running job trims its log.",
        "Everything: it only read.",
        "Read again.",
    )
    BACKFILL_INCOMPLETE = (
        "GRETE-H023",
        "a stage of a backfill or an audit is incomplete",
        "Spark gave other results than a stage has tasks, or tasks took other records than SQL finds in the files.",
        "The job: nothing of the backfill counts, and an audit only reads.",
        "Run it again. If that does not help, Spark's log says which executor failed.",
    )
    METADATA_DAMAGED = (
        "GRETE-H024",
        "an entry of the job's metadata cannot be read",
        (
            "What Grete has pinned for the job, or what a feed has noted, is not what Grete writes there. Something "
            "else wrote to the topic JOB.notes, or bytes were changed on disk or on the way."
        ),
        "What is committed. Nothing was started.",
        (
            "Find who wrote to the topic, and take its right to write away. Restore it, or start the job under another "
            "name."
        ),
    )
    BYTES_DAMAGED = (
        "GRETE-H025",
        "bytes that cannot be decoded",
        (
            "Something that Grete has read in a topic, in a store or in a file is not what Grete writes there: a "
            "disk that fails, another program that writes there, or a later release of Grete."
        ),
        "What is committed. Nothing was made of these bytes.",
        (
            "`grete changelog verify` says whether it is a changelog. If it is well, delete the folder `state` in the "
            "job's directory: it is restored. If that does not help, restore the topic or the file."
        ),
    )
    MISPLACED_KEYS = (
        "GRETE-H030",
        "keys are in partitions where they do not belong",
        "Two producers of an input place keys by different partitioners, so the state of a key would be split.",
        "What is committed. The record that was found was not processed.",
        "Give all producers one partitioner; docs/guides/kafka.md. If the split does no harm: `misplaced_keys=warn`.",
    )
    NOT_DETERMINISTIC = (
        "GRETE-H031",
        "a deterministic task is not deterministic",
        (
            "After a restart a task made other outputs, or other calls, of the same records. It uses a clock, "
            "random numbers, the order of a set, or other things that its records and state do not determine. Or its "
            "code was changed though it had not stopped gracefully."
        ),
        "What is committed. Outputs that are visible stay, and do not follow from the committed state.",
        (
            "If its code was changed, put the code of before back, stop it gracefully, then start the new code. Else "
            "`grete check-determinism JOB` finds the record and the lines of code. Take times and random numbers "
            "from `self.ctx`. Then start the job under another name: docs/explanation/deterministic.md."
        ),
    )
    SINK_REFUSES = (
        "GRETE-H040",
        "a sink refuses an output for good",
        (
            "A table, file or service refused an output in a way that no repetition helps: a constraint, a missing "
            "column or right, an answer such as 400."
        ),
        "What is committed. The output waits in the state, and what follows it waits behind it.",
        (
            "Change the table, its rights or the service so that the output fits, and start the job again: it is "
            "sent first. To go on without such outputs, give the `Output` a policy: docs/guides/bad-records.md."
        ),
    )
    SINK_ACCOUNT_GONE = (
        "GRETE-H041",
        "a sink has forgotten how far it is",
        "The row in which a database keeps how far a task's outputs have come was deleted.",
        "The rows that were written; nothing was written since.",
        "Put the row back, or delete what the task has written there, and start the job under another name.",
    )
    SINK_OF_ANOTHER_JOB = (
        "GRETE-H042",
        "a sink has the outputs of another job",
        (
            "The place for a task's outputs holds those of another job of the same name, or of an earlier life of "
            "this one."
        ),
        "Both jobs' outputs: nothing was overwritten.",
        (
            "Give each job a place of its own. If this job was started afresh and old outputs may stay, do what the "
            "text says."
        ),
    )
    SINK_CHANGED = (
        "GRETE-H043",
        "something else has written to a sink",
        "How far a sink has a task's outputs is not what the task has noted there: something else has changed it.",
        "What is committed, and what is in the sink.",
        "Find out what wrote there, put back the number that the text names, and start the job again.",
    )
    SINK_WENT_BACK = (
        "GRETE-H044",
        "a sink has lost outputs",
        (
            "A sink lacks outputs that it had taken, and the task does not keep them any more: it was restored from "
            "a backup, or is another database."
        ),
        "What is committed.",
        "Restore what it lacks; or, if that may be missing, set the number in its row as the text says.",
    )
    TRANSACTION_SPLIT = (
        "GRETE-H045",
        "a transaction was split",
        (
            "Something else has ended a transaction of a sink in its middle, so that outputs and their commit are not "
            "one any more: a second producer with the same transactional id, a person with `kafka-transactions.sh`, "
            "or a worker of a release before 0.4."
        ),
        "What was committed before. Of the last checkpoint, outputs are missing, or come again with the next start.",
        (
            "Compare the outputs of that checkpoint with its inputs, and put them right. Find out what ended the "
            "transaction. Then start the job again."
        ),
    )

    def __new__(cls, code: str, title: str, happened: str, safe: str, remedy: str) -> Self:
        """Keep what is known about the code beside it."""
        member = object.__new__(cls)
        member._value_, member.title = code, title
        member.happened, member.safe, member.remedy = happened, safe, remedy
        return member

    @property
    def page(self) -> str:
        """Return the address of its full description."""
        return f"{PAGE}#{str(self.value).lower()}"


def halt_code(text: object) -> HaltCode:
    """Return the code that a line of a log has; UNNAMED for one that is not known here."""
    return next((code for code in HaltCode if code.value == text), HaltCode.UNNAMED)
