"""Every metric: its name, its unit, what it means, and when to worry. The reference page is made of this table."""

from msgspec.structs import asdict

from grete.monitor.job_view import JobView
from grete.monitor.metric import JobMetric, TaskMetric, Values, WorkerMetric
from grete.protocol.report import REASONS, TaskReport, TaskState


def _event_time_lag(view: JobView, task: TaskReport) -> Values:
    at = task.measures.event_time_ms
    return None if at is None else (view.log_ms - at) / 1_000


COMMIT_SECONDS = "grete_commit_seconds"
COMMIT_TEXT = "from the moment a checkpoint is closed until its commit is in the changelog and in the state store"
COMMIT_WORRY = "half of them take longer than checkpoint_interval_ms: commits cannot keep up"

TASK_METRICS = (
    TaskMetric(
        name="grete_checkpoint_age_seconds",
        kind="gauge",
        text="time since the task's last checkpoint; a task with nothing to commit counts as up to date",
        worry="above ten checkpoint intervals: something holds the job up, and this is the one number that shows it",
        of=lambda view, task: view.age_s(task),
    ),
    TaskMetric(
        name="grete_checkpoint_wait",
        kind="gauge",
        text="1 while the task has waited for others for over a minute; the status names them",
        worry="1: look at the task that it waits for",
        of=lambda _view, task: float(task.waits is not None),
    ),
    TaskMetric(
        name="grete_task_running",
        kind="gauge",
        text="1 if the task takes input, 0 while it starts, restores or rolls back, or has ended",
        worry="0 for longer than a restore takes",
        of=lambda _view, task: float(task.status is TaskState.RUNNING),
    ),
    TaskMetric(
        name="grete_input_lag_records",
        kind="gauge",
        by="topic",
        text="offsets of an input from outside that the task has not committed yet",
        worry="it grows for hours: the job is too slow for its input",
        of=lambda view, task: view.lags(task),
    ),
    TaskMetric(
        name="grete_stream_lag_messages",
        kind="gauge",
        by="topic",
        text="messages from other tasks that the task has not processed yet; a message has up to thousands of records",
        worry="it grows, or stays near downstream_lag_messages_max: this stage is slower than the one before it",
        of=lambda view, task: view.stream_lags(task),
    ),
    TaskMetric(
        name="grete_event_time_lag_seconds",
        kind="gauge",
        text="how far the event time of the last checkpoint is behind the clock",
        worry="it grows while input arrives: one input or one producer holds event time back",
        of=_event_time_lag,
    ),
    TaskMetric(
        name="grete_records_in_total",
        kind="counter",
        text="records that the task has taken, from outside and from other stages; after a rollback some count again",
        of=lambda _view, task: task.measures.records_in,
    ),
    TaskMetric(
        name="grete_records_out_total",
        kind="counter",
        text="records that the task has sent, to other stages and outside; after a rollback some count again",
        of=lambda _view, task: task.measures.records_out,
    ),
    TaskMetric(
        name="grete_records_released_total",
        kind="counter",
        text="outputs that a deterministic task has released before their checkpoint",
        of=lambda _view, task: task.measures.released,
    ),
    TaskMetric(
        name="grete_records_dropped_total",
        kind="counter",
        by="reason",
        text="records that were dropped: late for their window, duplicates of an input, or failed",
        worry="late or failed ones increase: results miss them",
        of=lambda _view, task: asdict(task.dropped),
    ),
    TaskMetric(
        name="grete_dead_letters_total",
        kind="counter",
        text="records that failed and went to a dead-letter topic",
        worry="it increases: `grete dlq show` has the errors",
        of=lambda _view, task: task.measures.dead_letters,
    ),
    TaskMetric(
        name="grete_commits_total",
        kind="counter",
        text="checkpoints that the task has committed",
        of=lambda _view, task: task.measures.commits,
    ),
    TaskMetric(
        name="grete_commit_step_seconds_total",
        kind="counter",
        by="step",
        text="time that commits have spent in each step: outputs acknowledged, data, commit message, check, store",
        worry="one step has most of it: outputs or commit name the log, data and apply this machine",
        of=lambda _view, task: task.measures.commit_steps_s,
    ),
    TaskMetric(
        name="grete_changelog_bytes_total",
        kind="counter",
        text="bytes that the task has written to its changelog",
        of=lambda _view, task: task.measures.changelog_bytes,
    ),
    TaskMetric(
        name="grete_uncommitted_state_bytes",
        kind="gauge",
        text="changes to the state since the last checkpoint",
        worry="near uncommitted_state_bytes_max: the task closes checkpoints early, or stops",
        of=lambda _view, task: task.measures.uncommitted_bytes,
    ),
    TaskMetric(
        name="grete_unacknowledged_bytes",
        kind="gauge",
        text="bytes that were sent to the log, which has not acknowledged them",
        worry="near unacked_bytes_max: the log is too slow, and the task reads no input",
        of=lambda _view, task: task.measures.unacknowledged_bytes,
    ),
    TaskMetric(
        name="grete_held_output_bytes",
        kind="gauge",
        text="outputs to the outside that wait for their checkpoint",
        worry="near sink_buffer_bytes_max",
        of=lambda _view, task: task.measures.held_bytes,
    ),
    TaskMetric(
        name="grete_early_bytes",
        kind="gauge",
        by="place",
        text="records that have arrived and wait for their turn, in memory and on disk",
        worry="near early_bytes_max: one producer is far ahead of another",
        of=lambda _view, task: {"memory": task.measures.early_bytes.memory, "disk": task.measures.early_bytes.disk},
    ),
    TaskMetric(
        name="grete_backpressure",
        kind="gauge",
        text="1 while the task reads no input because of its sends, its sink, or the tasks behind it",
        worry="1 most of the time: find the slow sink or stage",
        of=lambda _view, task: float(task.measures.held_up),
    ),
    TaskMetric(
        name="grete_task_busy_seconds_total",
        kind="counter",
        text="time that the worker's loop was with this task: its rate is the task's share of the worker",
        worry="a rate near 1 while checkpoints get older, or others are held up: this stage is too slow",
        of=lambda _view, task: task.busy_s,
    ),
    TaskMetric(
        name="grete_hottest_key_share",
        kind="gauge",
        text="share of the last minute's time that the key had which took most of it, sampled while the task is busy",
        worry="above 0.5 while the stage is too slow: the status names the key, and more partitions do not help",
        of=lambda view, task: view.hottest_share(task),
    ),
    TaskMetric(
        name="grete_sink_waiting_bytes",
        kind="gauge",
        text="outputs to files, tables and HTTP that may go there and have not yet",
        worry="it grows: the sink is slow or refuses",
        of=lambda _view, task: task.measures.sink_bytes,
    ),
    TaskMetric(
        name="grete_sink_trouble",
        kind="gauge",
        text="1 while a sink refuses or does not answer; the status has its error",
        worry="1 for minutes",
        of=lambda _view, task: float(task.sink_trouble is not None),
    ),
    TaskMetric(
        name="grete_restore_remaining_messages",
        kind="gauge",
        text="messages of the changelog that a restore has still to read",
        worry="it does not fall for a minute",
        of=lambda _view, task: task.measures.restore_left,
    ),
    TaskMetric(
        name="grete_restored_records_total",
        kind="counter",
        text="entries of the state that were restored from the changelog",
        of=lambda _view, task: task.measures.restored,
    ),
    TaskMetric(
        name="grete_generation",
        kind="gauge",
        text="the generation of the task: a start and a rollback take the next one",
        worry="it rises often: the task, or one before it, crashes",
        of=lambda _view, task: task.generation,
    ),
    TaskMetric(
        name="grete_timers_waiting",
        kind="gauge",
        text="timers that are set, those of windows among them",
        of=lambda _view, task: task.timers,
    ),
)

WORKER_METRICS = (
    WorkerMetric(
        name="grete_worker_running",
        kind="gauge",
        text="1 if the worker process is there",
        worry="0: it crashed and waits for its restart, or another process has its tasks",
        of=lambda worker: float(worker.running),
    ),
    WorkerMetric(
        name="grete_worker_fenced",
        kind="gauge",
        text="1 once another process has the tasks of this worker, or one of them",
        worry="1, unless you have moved the partition",
        of=lambda worker: float(worker.fenced or TaskState.FENCED in {task.status for task in worker.tasks.values()}),
    ),
    WorkerMetric(
        name="grete_worker_silent_seconds",
        kind="gauge",
        text="time since the worker last said anything; it does so at least once a second",
        worry="above 5: its process is stopped, or gets no processor",
        of=lambda worker: None if worker.measures is None else worker.silent_s,
    ),
    WorkerMetric(
        name="grete_worker_blocked_since_seconds",
        kind="gauge",
        text="when the call of your code began that does not end: seconds since 1970; 0: there is none",
        worry="above 0: the status names function, file and line",
        of=lambda worker: None if worker.measures is None else worker.blocked_since_s,
    ),
    WorkerMetric(
        name="grete_worker_starts_total",
        kind="counter",
        text="starts of the worker process by its supervisor",
        worry="it increases",
        of=lambda worker: worker.starts,
    ),
    WorkerMetric(
        name="grete_worker_ends_total",
        kind="counter",
        by="reason",
        text="ends of the worker process that its supervisor did not ask for, and of single tasks, which start again "
        f"in it: {', '.join(REASONS)}",
        worry="it increases: task error is a record or the code, disk and log away name what is to be repaired",
        of=lambda worker: {str(reason): count for reason, count in worker.ends.items()},
    ),
    WorkerMetric(
        name="grete_worker_halted",
        kind="gauge",
        by="code",
        text="1 once the worker has halted, or was given up: it will not be started again",
        worry="1: [its code](halts.md) says what happened, what is safe and what to do",
        of=lambda worker: {worker.last_end.code: 1.0} if worker.halted and worker.last_end is not None else {},
    ),
    WorkerMetric(
        name="grete_log_away",
        kind="gauge",
        text="1 while the log has not answered the worker for seconds",
        worry="1 for a minute: the brokers, or the network between",
        of=lambda worker: None if worker.measures is None else float(worker.measures.log_trouble is not None),
    ),
    WorkerMetric(
        name="grete_worker_busy_seconds_total",
        kind="counter",
        text="time in which the worker's loop did not wait: its rate is the share of a core that it could use",
        worry="a rate near 1: the worker has no room left",
        of=lambda worker: None if worker.measures is None else worker.measures.busy_s,
    ),
    WorkerMetric(
        name="grete_rocksdb_memory_bytes",
        kind="gauge",
        text="memory of the worker's state stores: blocks, indexes, filters, memtables",
        worry="far above rocksdb_bytes",
        of=lambda worker: None if worker.measures is None else worker.measures.rocksdb_memory_bytes,
    ),
    WorkerMetric(
        name="grete_state_disk_bytes",
        kind="gauge",
        text="size of the files of the worker's state stores",
        worry="the disk is nearly full",
        of=lambda worker: None if worker.measures is None else worker.measures.state_disk_bytes,
    ),
)

JOB_METRICS = (
    JobMetric(
        name="grete_disk_free_bytes",
        kind="gauge",
        text="what may still be written to the disk of the job's directory",
        worry="less than the state takes: a full disk ends the workers",
        of=lambda view: view.disk_free_bytes,
    ),
    JobMetric(
        name="grete_clock_ahead_seconds",
        kind="gauge",
        text="how far this machine's clock is before the log's, at least; below 0: behind it",
        worry="beyond 5 either way: set both clocks by one source",
        of=lambda view: view.ahead_ms / 1_000,
    ),
    JobMetric(
        name="grete_members_live",
        kind="gauge",
        text="machines that run the job, as this one sees them (on Kafka)",
        worry="fewer than you have started: their partitions are on the others",
        of=lambda view: None if view.members is None else len(view.members),
    ),
    JobMetric(
        name="grete_members_by_code",
        kind="gauge",
        by="code",
        text="machines that run the job, by the digest of their code",
        worry="two codes for longer than an upgrade takes: the finding names the machines",
        of=lambda view: {code: len(machines) for code, machines in view.codes.items()},
    ),
    JobMetric(
        name="grete_member_partitions",
        kind="gauge",
        text="partitions that the assignment gives to this machine",
        worry="the sum over all machines is below the job's partitions: one of them has halted",
        of=lambda view: None if view.members is None else view.partitions_here,
    ),
    JobMetric(
        name="grete_member_last_move_seconds",
        kind="gauge",
        text="when a partition last came to this machine, or went: seconds since 1970; 0: never",
        worry="it changes again and again: look why machines come and go",
        of=lambda view: None if view.members is None else view.moved_ms / 1_000,
    ),
)
