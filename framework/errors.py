"""The error tree: a class names what a caller or an operator must do; the text gives values and the next step."""


class FrameworkError(Exception):
    """Root of every error that Grete raises on purpose."""


class ConfigError(FrameworkError):
    """A setting, a topic or a job graph is wrong: fix it before the start; nothing has been written."""


class GraphError(ConfigError):
    """The declarations of a job contradict each other: fix the named stage, topic or store."""


class TaskError(FrameworkError):
    """The task's own code raised: fix the task. The cause is chained."""


class SerdeError(TaskError):
    """A serde refused a value or bytes: fix the task, the declaration or the input. The cause is chained."""


class TransientError(FrameworkError):
    """A log or disk did not answer in time or is full: the process exits 1 and is restarted with back-off."""


class Fenced(FrameworkError):
    """A newer generation owns this task (C5): give it up, exit 3, do not restart."""


class Halted(FrameworkError):
    """An assumption is broken (a record was lost, a log truncated, a topology changed): exit 4, a person must look."""


class StoreCorrupted(FrameworkError):
    """The local store cannot be read or contradicts the changelog: wipe it (by rename) and restore."""


class OffsetOutOfRange(FrameworkError):
    """A read or trim named an offset that the log does not hold (before its start or beyond its end)."""
