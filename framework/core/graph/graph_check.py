"""Whether a task can go on from its last commit: number, wiring and modes, compared with the code's (1.2)."""

from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition, split_producer_id

WAY_BACK = (
    "put the stages back into their order and under their names (name = … in the class), and new ones behind them; or "
    "give the job a new name: it starts from its inputs then"
)
MODES_KEPT = "a job keeps its modes: put them back, or give the job another name, under which it starts from its inputs"
FOREIGN = (
    "if `grete apply`, `grete rescale` or `grete migrate` was called with other code, start that code: `grete plan` "
    "says what differs. Else something else wrote there: `grete changelog tail` shows it; take its right to write "
    "away, then restore the topic, or start the job under another name"
)


def check_known(task: TaskWiring, commit: Commit) -> None:
    """Raise ConfigError for a commit under a graph that the job, as far as it is known here, has never had."""
    if commit.fingerprint not in task.fingerprints:
        raise ConfigError(
            f"{task.name}: the newest commit in {task.changelog} (checkpoint {commit.checkpoint_id}, generation "
            f"{commit.generation}) was made under a graph of fingerprint {commit.fingerprint:016x}, and this job has "
            f"had {', '.join(f'{each:016x}' for each in sorted(task.fingerprints))}: {FOREIGN}",
            task=task.name,
            checkpoint_id=commit.checkpoint_id,
        )


def check_commit(task: TaskWiring, commit: Commit) -> None:
    """Raise ConfigError unless the commit is of this task's number and wiring: only stages may have been added last."""
    then, now = (split_producer_id(producer)[0] for producer in (commit.producer, task.producer))
    if then != now:
        raise ConfigError(
            f"{task.name}: its last commit (checkpoint {commit.checkpoint_id}) was made by stage number {then} of the "
            f"job, and in this code the stage has number {now}: {WAY_BACK}",
            task=task.name,
            checkpoint_id=commit.checkpoint_id,
        )
    channels = {(c.producer, TopicPartition(i.topic, i.partition)) for i in commit.inputs for c in i.channels}
    outputs = {TopicPartition(o.topic, o.partition) for o in commit.outputs}
    external = {TopicPartition(e.topic, e.partition) for e in commit.external}
    gone = [
        *(f"input {p} from producer {u}" for u, p in sorted(channels ^ set(task.channels))),
        *(f"output {p}" for p in sorted(outputs - set(task.outputs))),
        *(f"external input {p}" for p in sorted(external - set(task.external))),
    ]
    if gone:
        raise ConfigError(
            f"{task.name}: the job's graph is not the one of its last commit (checkpoint {commit.checkpoint_id}): "
            f"{', '.join(gone[:5])} differ: {WAY_BACK}. To change the number of partitions: grete rescale",
            task=task.name,
            checkpoint_id=commit.checkpoint_id,
        )
    check_known(task, commit)


def check_aligned(task: TaskWiring, commit: Commit) -> None:
    """Raise ConfigError unless an aligned task, or one at least once, can go on from the commit."""
    check_commit(task, commit)
    if (commit.deterministic is not None) != bool(task.logical):
        raise ConfigError(
            f"{task.name}: its last commit (checkpoint {commit.checkpoint_id}) was made when this stage, or one that "
            f"it reads, ran in another mode: {MODES_KEPT}",
            task=task.name,
            checkpoint_id=commit.checkpoint_id,
        )


def check_deterministic(task: TaskWiring, commit: Commit) -> None:
    """Raise ConfigError unless a deterministic task can go on from the commit."""
    check_commit(task, commit)
    if commit.deterministic is None:
        raise ConfigError(
            f"{task.name}: its last commit (checkpoint {commit.checkpoint_id}) is not one of deterministic mode: "
            f"{MODES_KEPT}",
            task=task.name,
            checkpoint_id=commit.checkpoint_id,
        )
