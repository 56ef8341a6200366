"""Settings: plain, frozen, validated data. Each field has its unit in its name and its reason beside it."""

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Literal, get_args, get_type_hints

import msgspec

from grete.errors import ConfigError
from grete.quoting import ShowRecords

# a broker and a database for tests; options of the command line
NOT_SETTINGS = {"GRETE_KAFKA", "GRETE_POSTGRES", "GRETE_LOG", "GRETE_KAFKA_CONFIG", "GRETE_SETTINGS"}
# what Kubernetes puts into each pod for a service named grete, or grete-NAME
_KUBERNETES = re.compile(r"GRETE_(\w+_)?(SERVICE_HOST|(SERVICE_)?PORT(_\w+)?)")
_MAY_BE_0 = (
    "early_bytes_max",
    "changelog_retention_ms",
    "stream_retention_ms",
    "early_memory_bytes_max",
    "traced_per_million",
    "standby_replicas",
)
MACHINE_LENGTH_MAX = 200  # characters that a heartbeat holds: protocol/members.py
KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
_PASSWORD = re.compile(r"//[^/@\s]*@")  # a user and a password in a url
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")  # of a header, in lower case
_INT32_MAX = (1 << 31) - 1  # of a time in ms that the system and clients wait for: 24 days
_MOST = {  # by the end of a setting's name, the longer end first
    "_retention_ms": 100 * 365 * 86_400_000,  # a hundred years: times in ms are exact far beyond
    "_ms": _INT32_MAX,
    "frame_bytes_max": _INT32_MAX,  # a message has four bytes for a length
    "batch_bytes_max": _INT32_MAX,
    "_bytes_max": 1 << 50,  # 1 PiB: no machine has it
    "_bytes": 1 << 50,
    "traced_per_million": 1_000_000,
    "standby_replicas": 1_000,  # machines
    "": _INT32_MAX,
}


def without_password(text: str) -> str:
    """Return a text without the users and passwords of urls in it, for people."""
    return _PASSWORD.sub("//…@", text)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a job; the same for all of its workers."""

    processing_guarantee: Literal["exactly-once", "at-most-once", "at-least-once", "none"] = "exactly-once"
    """What a crash may do: nothing, skip records, repeat records, or anything. At least once, outputs do not wait for
    a commit. At most once, a checkpoint that fails is not done again: its records are skipped, in all stages alike.

    None: each task processes a record once or not at all, when a commit has its position, and results have
    no guarantee: a crash may take a record from the state whose output was seen, or from a later stage only.
    """
    checkpoint_interval_ms: int = 200
    """Sources close a checkpoint this often (A1). A sink's output waits for half of it on average.

    In aligned mode they close one earlier when they have sent an eighth of
    uncommitted_state_bytes_max, or a task behind them holds a quarter of it (A9).
    """
    idle_checkpoint_interval_ms: int = 10_000
    """A task that has nothing new, and whose checkpoints no other task awaits, commits this often.

    While the rest lasts the interval doubles, up to 32 times this and 320 s. A common
    checkpoint of all tasks is at most that old, as long as one is idle. If it is no longer than
    checkpoint_interval_ms, each checkpoint is committed.
    """
    frame_bytes_max: int = 512 * KiB
    """An output frame is closed at this size, or at the end of a batch."""
    batch_bytes_max: int = 64 * KiB
    """Read from one partition at a time. A larger batch means larger frames and later outputs."""
    early_memory_bytes_max: int = 16 * MiB
    """Early frames of one task in memory; beyond, they go to disk (A4)."""
    early_bytes_max: int = 1 * GiB
    """Early frames of one task in all; beyond, it reads them again from the stream (A5). 0: it keeps none."""
    uncommitted_state_bytes_max: int = 256 * MiB
    """Uncommitted state of one task; beyond, a source takes no input until it has committed, others halt (A9).

    So for the outputs that an aligned task holds for its checkpoint.
    """
    sink_buffer_bytes_max: int = 64 * MiB
    """Outputs that a sink holds back for the next checkpoint; beyond, it takes no input until then (A8)."""
    unacked_bytes_max: int = 32 * MiB
    """Sent and not yet acknowledged; beyond, the task stops reading (B1)."""
    send_timeout_ms: int = 600_000
    """A message that is not acknowledged after this time ends the process with exit code 1 (B1).

    So does a question that the log does not answer; a supervisor starts the worker again.
    """
    downstream_lag_messages_max: int = 20_000
    """A source pauses while its consumers have more messages of a partition to process than this (B1).

    At least 25 for each partition of a stream: checkpoint markers and progress messages count, too.
    """
    stream_retention_ms: int = 0
    """How long a stream keeps records that its consumer has committed, for readers outside of the job (K3)."""
    read_cache_bytes_max: int = 32 * MiB
    """Values read from RocksDB and kept in memory, for each task."""
    rocksdb_bytes: int = 256 * MiB
    """Block cache and memtables of the whole process: one budget."""
    changelog_retention_ms: int = 86_400_000
    """How long a changelog is kept for reads of an earlier checkpoint, when no restore needs it any more (K2)."""
    misplaced_keys: Literal["halt", "warn"] = "halt"
    """What a worker does when it finds a key in a partition that its input's partitioner does not give."""
    progress_interval_ms: int = 5
    """Deterministic mode: a source emits a progress message this often (D1)."""
    output_delivery: Literal["transactional", "sequenced"] = "transactional"
    """Deterministic mode: outputs leave in transactions, or with numbers by which a reader drops repeats (D5)."""
    sink_delivery: Literal["checkpoint", "early"] = "checkpoint"
    """Deterministic mode: files and tables get outputs with their checkpoint, or ahead of it as topics do (D5)."""
    untrimmed_bytes_max: int = 256 * MiB
    """Deterministic mode: read of streams since the last commit; beyond, a task commits before its interval (K3)."""
    time_lease_ms: int = 200
    """Deterministic mode: how far ahead a source reserves the time that it may announce (D2)."""
    event_time_idle_ms: int = 5_000
    """An input partition without a new record for this long holds no timer or window back (E4).

    Producers' retries and changes of a broker's leader take less.
    """
    checkpoint_ahead_ms: int = 60_000
    """A checkpoint id this far ahead of its append time is reported (A1)."""
    snapshot_url: str = ""
    """A folder of snapshots, of ``grete snapshot``: a path, or a url of fsspec. Empty: there is none.

    A worker whose local store is missing takes the newest one, and only the rest from the changelog.
    """
    tracing: Literal["off", "on"] = "off"
    """Whether outputs carry the ``traceparent`` of their records, and spans are told to OpenTelemetry (extra otel).

    In deterministic mode outputs hold it, so change it as code is changed: between a graceful stop and a start.
    """
    traced_per_million: int = 0
    """Tracing: of a million records from outside without a ``traceparent`` this many are sampled; so of checkpoints."""
    shutdown_timeout_ms: int = 10_000
    """A graceful stop waits this long for its alignment (R6)."""
    liveness_timeout_ms: int = 300_000
    """A worker that makes no progress (no record, no turn of its loop) for this long logs all stacks and is
    restarted.

    As Kafka's ``max.poll.interval.ms``: a record, a timer or a call of ``process_batch`` may take almost as long.
    """
    restart_backoff_ms: int = 200
    """First wait before a crashed worker is restarted. It doubles up to restart_backoff_ms_max."""
    restart_backoff_ms_max: int = 10_000
    """Longest wait before a crashed worker is restarted."""
    restarts_max: int = 10
    """Crashes of one worker in a row, without progress in between, after which the supervisor gives up.

    Progress is input that was read and committed; a checkpoint of nothing is none. An exit because the log did not
    answer is not counted.
    """
    show_records: ShowRecords = "all"
    """The parts of records that page, screens, logs and reports to other members show: all, keys alone, or none.

    With keys or none, a text that may have a value in it is left out, too: of an error of your code its class and line
    are told. A dead letter keeps its text. What your code itself prints and logs is not changed.
    """
    http_hosts: str = ""
    """Further host names, separated by commas, under which `--http` answers: those of a proxy or a service."""
    http_token_file: str = ""
    """A file with a token: what `--http` serves, but for ``/livez``, then needs ``Authorization: Bearer TOKEN``."""
    member_heartbeat_interval_ms: int = 500
    """Several machines: the interval of a member's heartbeats in JOB.members, which also name its partitions."""
    member_timeout_ms: int = 2_000
    """Several machines: the silence after which the others declare a member dead, measured in their own heartbeats.

    Its partitions move at once. At least 2 × member_heartbeat_interval_ms; above an hour it counts as an hour.
    """
    machine: str = ""
    """Several machines: what this one is called, in JOB.members and for standbys. Empty: its host name.

    At most 200 characters.
    """
    standby_replicas: int = 0
    """Several machines: how many copies of each partition's state other machines keep, ready to go on with it.

    Fewer while there are not as many other members. All members should have the same value: the leader's holds.
    """

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names in http_hosts, as they are compared."""
        return tuple(name.strip().lower().rstrip(".") for name in self.http_hosts.split(",") if name.strip())

    @property
    def aligned(self) -> bool:
        """Whether the tasks of an aligned job have their checkpoints in common."""
        return self.processing_guarantee in ("exactly-once", "at-most-once")

    @property
    def loses(self) -> bool:
        """Whether tasks hold what they read until a commit has its position: what a crash then takes is not redone."""
        return self.processing_guarantee in ("at-most-once", "none")

    def __post_init__(self) -> None:
        """Raise ConfigError on a value that cannot work."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least = 0 if name in _MAY_BE_0 else 1
            if isinstance(value, int) and value < least:
                raise ConfigError(f"setting {name} = {value}: must be {least} or more", setting=name)
            most = next(most for end, most in _MOST.items() if name.endswith(end))
            if isinstance(value, int) and value > most:
                raise ConfigError(f"setting {name} = {value}: must be {most:,} or less", setting=name)
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(
                    f"setting http_hosts = {self.http_hosts!r}: {host!r} is no host name: write names as a browser "
                    "asks for them, without scheme and port, with commas between: jobs.example,jobs.internal",
                    setting="http_hosts",
                )
        if len(self.machine) > MACHINE_LENGTH_MAX:
            raise ConfigError(
                f"setting machine has {len(self.machine)} characters: at most {MACHINE_LENGTH_MAX}", setting="machine"
            )
        if self.member_timeout_ms < 2 * self.member_heartbeat_interval_ms:
            raise ConfigError(
                f"setting member_timeout_ms = {self.member_timeout_ms} is below 2 × member_heartbeat_interval_ms = "
                f"{2 * self.member_heartbeat_interval_ms}: one late heartbeat would count as a death: raise it",
                setting="member_timeout_ms",
            )
        if self.uncommitted_state_bytes_max < 4 * self.batch_bytes_max:
            raise ConfigError(
                f"setting uncommitted_state_bytes_max = {self.uncommitted_state_bytes_max} is below 4 × "
                f"batch_bytes_max = {4 * self.batch_bytes_max}: raise it",
                setting="uncommitted_state_bytes_max",
            )


GROUPS = {  # the tables of a settings file, by what a person wants to change
    "checkpoints": (
        "processing_guarantee",
        "checkpoint_interval_ms",
        "idle_checkpoint_interval_ms",
        "checkpoint_ahead_ms",
        "changelog_retention_ms",
    ),
    "memory": (
        "early_memory_bytes_max",
        "early_bytes_max",
        "uncommitted_state_bytes_max",
        "sink_buffer_bytes_max",
        "read_cache_bytes_max",
        "rocksdb_bytes",
    ),
    "streams": (
        "frame_bytes_max",
        "batch_bytes_max",
        "unacked_bytes_max",
        "send_timeout_ms",
        "downstream_lag_messages_max",
        "stream_retention_ms",
    ),
    "inputs": ("misplaced_keys", "event_time_idle_ms"),
    "deterministic": (
        "progress_interval_ms",
        "output_delivery",
        "sink_delivery",
        "untrimmed_bytes_max",
        "time_lease_ms",
    ),
    "workers": (
        "snapshot_url",
        "tracing",
        "traced_per_million",
        "shutdown_timeout_ms",
        "liveness_timeout_ms",
        "restart_backoff_ms",
        "restart_backoff_ms_max",
        "restarts_max",
        "show_records",
        "http_hosts",
        "http_token_file",
    ),
    "members": ("member_heartbeat_interval_ms", "member_timeout_ms", "machine", "standby_replicas"),
}


CHOICES = {name: get_args(hint) for name, hint in get_type_hints(Settings).items() if get_args(hint)}


def group_of(name: str) -> str:
    """Return the table in which a settings file has a setting. Raises ConfigError for an unknown one."""
    _check_known(name)
    return next(group for group, names in GROUPS.items() if name in names)


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of an error about an unknown name: the known one that is most like it, else all of them."""
    found = get_close_matches(name, known, n=1)
    return f"did you mean {found[0]}?" if found else f"known are {', '.join(known)}"


def with_texts(settings: Settings, texts: dict[str, str]) -> Settings:
    """Return the settings with some replaced by texts, as flags and the environment give them. Raises ConfigError."""
    values: dict[str, object] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    for name, text in texts.items():
        _check_known(name)
        if name in CHOICES:
            if text not in CHOICES[name]:
                raise ConfigError(f"setting {name} = {text!r}: choose {' or '.join(CHOICES[name])}", setting=name)
            values[name] = text
            continue
        if isinstance(values[name], str):
            values[name] = text
            continue
        try:
            values[name] = int(text)
        except ValueError as error:
            raise ConfigError(f"setting {name} = {text!r}: must be an integer", setting=name) from error
    return msgspec.convert(values, Settings)


def _check_known(name: str) -> None:
    """Raise ConfigError for the name of a setting that there is not."""
    if name not in Settings.__struct_fields__:
        raise ConfigError(f"unknown setting {name!r}: {nearest(name, Settings.__struct_fields__)}", setting=name)


def environment_texts(environment: dict[str, str]) -> dict[str, str]:
    """Return the settings that are variables of the environment, such as GRETE_CHECKPOINT_INTERVAL_MS, by name."""
    prefix = "GRETE_"
    return {
        name[len(prefix) :].lower(): text
        for name, text in environment.items()
        if name.startswith(prefix) and name not in NOT_SETTINGS and not _KUBERNETES.fullmatch(name)
    }


def from_environment(environment: dict[str, str]) -> Settings:
    """Return the defaults, overridden by the variables of the environment. Raises ConfigError."""
    return with_texts(Settings(), environment_texts(environment))
