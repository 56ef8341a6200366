"""The lines that Grete logs: a name for each that never changes, when it comes, and what to do. One table."""

from typing import NamedTuple

_GOES_ON = "nothing: the job goes on"


class LogEvent(NamedTuple):
    """One line. ``begins``: how its text begins, as the call of the logger has it; the name stays if that changes."""

    name: str
    begins: str
    when: str
    remedy: str


EVENTS = (
    LogEvent("worker-started", "worker started", "a worker has opened its log and its stores", _GOES_ON),
    LogEvent("worker-done", "worker done", "a worker was asked to stop, and did", _GOES_ON),
    LogEvent(
        "worker-stopped-early",
        "stopped while it was starting: it had processed nothing",
        "a worker was asked to stop before it had opened its log, which may be away",
        _GOES_ON,
    ),
    LogEvent("task-ready", "ready", "a task has restored its state and takes input", _GOES_ON),
    LogEvent(
        "task-ended",
        "task ended",
        "a task has ended by an error of its own, and the other tasks of its process go on",
        "do what the error says; kind Fenced: look for a second worker of this job",
    ),
    LogEvent("task-left", "task left", "a task was taken away from this worker, and is hosted elsewhere", _GOES_ON),
    LogEvent("fenced", "fenced", "another process has the partition", "look for a second worker of this job"),
    LogEvent("halted", "halted", "an assumption is broken", "its code says it: docs/reference/halts.md"),
    LogEvent("refused", "refused", "no worker can be made of the command line", "correct what the error names"),
    LogEvent("unforeseen", "crashed by an error", "an error that Grete did not foresee", "report it, with the line"),
    LogEvent("crashed", "crashed", "an error ended the worker", "do what the error says; the worker starts again"),
    LogEvent("store-corrupted", "store corrupted", "a local store is damaged", "nothing, unless it happens again"),
    LogEvent("log-away", "log away", "the log was silent for send_timeout_ms", "check the brokers"),
    LogEvent("log-silent", "log availability", "the log is silent, or answers again", "check the brokers"),
    LogEvent(
        "stop-timed-out", "stop timed out", "a stop took too long", "a larger shutdown_timeout_ms, if it does harm"
    ),
    LogEvent("fetches-afresh", "fetches afresh", "what a topic has did not come for 10 s", "nothing"),
    LogEvent("store-wiped", "store wiped", "a store could not be opened", "nothing: it is restored"),
    LogEvent("standby-started", "standby started", "a standby has opened its stores", _GOES_ON),
    LogEvent("standby-caught-up", "standby has caught up", "a standby has all that is committed", _GOES_ON),
    LogEvent(
        "standby-overtaken", "standby overtaken", "a changelog was trimmed ahead of a standby", "nothing: it restores"
    ),
    LogEvent("standby-opened-nothing", "nothing was opened ahead", "a standby cannot prepare its promotion", _GOES_ON),
    LogEvent("standby-stopped", "standby stopped", "a standby cannot apply a changelog", "what the error says"),
    LogEvent("records-dropped", "%s records dropped", "records were late, repeated or failed", "docs/guides/time.md"),
    LogEvent("task-waits", "waits for other tasks", "a task waits for over a minute", "look at the tasks it names"),
    LogEvent(
        "awaits-transaction",
        "awaits a transaction",
        "a producer has a transaction open in a table that is read first",
        "end that producer, or the transaction: the line has the command",
    ),
    LogEvent(
        "code-blocks",
        "your code blocks",
        "one call takes over a second",
        "give it a time-out, or make it a Call; if it is an async function of a Call, make that a plain one",
    ),
    LogEvent("sink-trouble", "sink in trouble", "a sink does not take its outputs", "check the sink"),
    LogEvent("source-trouble", "source in trouble", "a source of a client fails", "check the source"),
    LogEvent("spool-waits", "spool waits", "records wait on disk for the log", "check the brokers"),
    LogEvent("spool-full", "spool full", "a writer's file is at its bound", "check the brokers; a larger bound"),
    LogEvent("registry-silent", "schema registry %s does not", "a schema registry is away", "check the registry"),
    LogEvent("registry-answers", "schema registry %s answers", "a schema registry is back", _GOES_ON),
    LogEvent("http-serves", "page, metrics and health", "a worker serves --http", _GOES_ON),
    LogEvent("may-differ", "may not be deterministic", "a line of deterministic code looks wrong", "change the line"),
    LogEvent("lint-failed", "the check for code", "the check of the code failed itself", "report it, with the line"),
    LogEvent("backfill-files", "state taken from files", "a store was made from a backfill's files", _GOES_ON),
    LogEvent(
        "backfill-files-unusable", "files of a backfill", "a backfill's files do not fit", "nothing: it is restored"
    ),
    LogEvent("snapshot-fetching", "fetching a snapshot", "a worker without a store fetches a snapshot", _GOES_ON),
    LogEvent("snapshot-taken", "state taken from a snapshot", "a store was made from a snapshot's files", _GOES_ON),
    LogEvent(
        "snapshot-none", "no snapshot of the task", "the folder has none of this task", "take one: grete snapshot"
    ),
    LogEvent(
        "snapshot-unusable",
        "snapshot cannot be used",
        "a snapshot is damaged, too old or of another job, or its folder is away",
        "do what the error says; the state is restored from the changelog",
    ),
    LogEvent(
        "snapshot-not-local", "local store left out", "a store is not as the log has it", "nothing: the log is read"
    ),
    LogEvent(
        "state-split", "state is split", "a key is where it does not belong", "docs/guides/kafka.md, partitioners"
    ),
    LogEvent(
        "partitioner-unknown", "the keys of an input", "keys are placed by no known rule", "one partitioner for all"
    ),
    LogEvent("partitioner-known", "the partitioner of an input is known", "keys are placed by a known rule", _GOES_ON),
    LogEvent("partitioner-unpinned", "the partitioner of an input cannot", "it could not be kept", _GOES_ON),
    LogEvent(
        "topic-named", "a record has named a new topic", "an output goes to the topics that records name", _GOES_ON
    ),
    LogEvent("topic-at-risk", "topic %s has", "one broker could lose what is acknowledged", "more replicas"),
    LogEvent("disk-not-given-back", "topic %s keeps", "a right is missing: `grete doctor`", "grant AlterConfigs"),
    LogEvent("topic-unchecked", "cannot check whether topic", "a right is missing", "grant DescribeConfigs"),
    LogEvent("trim-failed", "trimming %s failed", "a trim failed, and is made up for", _GOES_ON),
    LogEvent("positions-unseen", "lag tools", "a right to the group is missing", "grant Read on the group"),
    LogEvent("new-epoch", "transactional id %s has a new epoch", "a transaction's end was slow or unknown", _GOES_ON),
    LogEvent("transaction-lost", "transactional id", "another process has the id, or has written", _GOES_ON),
    LogEvent(
        "transaction-unknown", "a transaction of", "it failed, or its outcome is unknown", "nothing: it is settled"
    ),
    LogEvent("output-grew", "output topic", "a topic that is written has more partitions", "docs/guides/evolve.md"),
    LogEvent("metadata-gone", "the metadata of job", "what the job had pinned is gone", "restore the topic"),
    LogEvent("changelogs-watched", "nothing tells whether", "workers elsewhere may be at work", "nothing: it looks"),
    LogEvent("definition-pinned", "job %s has run with", "an older release pinned nothing", _GOES_ON),
    LogEvent("start-ignored", "stage %s has begun", "start= changed after the first run", "a job of another name"),
    LogEvent("spans-apart", "spans have other ids", "an id generator was replaced", "do what the text says"),
    LogEvent("kafka-client", "%s", "the Kafka client says something", "what it says; most of it passes"),
)


def event_of(template: str) -> LogEvent | None:
    """Return the event whose text begins like that of a logger's call; None for a line that is none of ours."""
    return next((event for event in EVENTS if template.startswith(event.begins)), None)
