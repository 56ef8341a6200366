"""The error tree: a class names what a caller or an operator must do; the text gives values and the next step."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self

from grete.halts import HaltCode, halt_code
from grete.protocol.ids import TopicPartition

FIELDS = ("task", "stage", "topic", "partition", "offset", "checkpoint_id", "setting")  # of an error, where known


class ExitCode(IntEnum):
    """Exit codes of Grete's processes (C5). ``meaning``: the cause; ``advice``: for a service manager."""

    meaning: str
    advice: str

    DONE = 0, "asked to stop (SIGTERM), and did; or the command has done its work", "not restart it"
    FAILED = (
        1,
        "crashed, hung, did not stop in time, the broker did not answer, or a check of the job found a difference",
        "restart it, with a pause",
    )
    USAGE = 2, "the command line, a setting or the job's code is wrong; nothing was started", "not restart it"
    FENCED = 3, "fenced: another process has the partition", "not restart it"
    HALTED = 4, "halted: an assumption is broken, or a worker found a wrong configuration", "page an operator"

    def __new__(cls, code: int, meaning: str, advice: str) -> Self:
        """Keep what is known about the code beside it."""
        member = int.__new__(cls, code)
        member._value_, member.meaning, member.advice = code, meaning, advice
        return member


Plain = dict[str, str | int]  # the text and the fields of an error, as JSON has them
PlainRead = Mapping[str, Any]  # the same, from another process: it may hold other things, too


class FrameworkError(Exception):
    """Root of every error that Grete raises on purpose.

    Its fields say where, as far as the place that raises it knows: for log lines and for callers, who need not read
    the text. They survive pickling. ``setting``: the name of the setting that decides.
    """

    def __init__(
        self,
        text: str = "",
        *,
        task: str | None = None,
        stage: str | None = None,
        topic: str | None = None,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        checkpoint_id: int | None = None,
        setting: str | None = None,
    ) -> None:
        super().__init__(text)
        self.task, self.stage = task, stage
        self.topic = partition.topic if partition is not None else topic
        self.partition, self.offset, self.checkpoint_id = partition, offset, checkpoint_id
        self.setting = setting

    def plain(self) -> Plain:
        """Return the text as ``error`` and the fields that are known, as JSON has them: partition is a number."""
        known = {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not None}
        if self.partition is not None:
            known["partition"] = self.partition.partition
        return {"error": str(self), **known}

    @classmethod
    def from_plain(cls, plain: PlainRead, text: str | None = None) -> Self:
        """Return an error of this class with the fields of ``plain``, which may hold other things, too."""
        fields = {name: plain[name] for name in FIELDS if name in plain}
        if "partition" in fields:
            topic = fields.pop("topic", None)
            fields["partition"] = None if topic is None else TopicPartition(topic, fields["partition"])
        return cls(plain["error"] if text is None else text, **fields)


class ConfigError(FrameworkError):
    """A setting, a topic or a job graph is wrong: fix it before the start; nothing has been written."""


class GraphError(ConfigError):
    """The declarations of a job contradict each other: fix the named stage, topic or store."""


class TaskError(FrameworkError):
    """The task's own code raised: fix the task. The cause is chained."""


class SerdeError(TaskError):
    """A serde refused a value or bytes: fix the task, the declaration or the input. The cause is chained."""


class TransientError(FrameworkError):
    """A log, disk or service did not answer in time, or is full: it is tried again, or the process is restarted.

    ``wait_ms``: what was asked has said that it takes nothing before, such as by ``Retry-After``. A sink waits for an
    hour of it at most, a ``Call`` for its ``timeout_ms``.
    """

    def __init__(self, text: str = "", *, wait_ms: int = 0, **fields: Any) -> None:
        super().__init__(text, **fields)
        self.wait_ms = wait_ms


class LogAway(TransientError):
    """The log did not answer for as long as its owner waits: nothing is wrong with the process, try again."""


class Fenced(FrameworkError):
    """A newer generation owns this task (C5): give it up, exit 3, do not restart."""


class Halted(FrameworkError):
    """An assumption is broken (a record was lost, a log truncated, a topology changed): exit 4, a person must look.

    ``code`` names the assumption: docs/reference/halts.md says what happened, what is safe and what to do.
    """

    def __init__(self, text: str = "", *, code: HaltCode = HaltCode.UNNAMED, **fields: Any) -> None:
        super().__init__(text, **fields)
        self.code = code

    def __str__(self) -> str:
        text, code = super().__str__(), self.code.value
        return text if self.code is HaltCode.UNNAMED or code in text else f"{code}: {text}"

    def plain(self) -> Plain:
        """Return the same, with ``code``."""
        named = {} if self.code is HaltCode.UNNAMED else {"code": str(self.code.value)}
        return {**super().plain(), **named}

    @classmethod
    def from_plain(cls, plain: PlainRead, text: str | None = None) -> Self:
        """Return an error of this class with the fields and the code of ``plain``."""
        error = super().from_plain(plain, text)
        error.code = halt_code(plain.get("code"))
        return error


class Refused(Halted):
    """The log refuses a message for its content, and would refuse it again: a person must look.

    ``message``: its bytes, where they are not a user's record but what a task sends to a changelog or a stream.
    """

    def __init__(self, text: str = "", *, message: bytes = b"", **fields: Any) -> None:
        super().__init__(text, **fields)
        self.message = message


class OutputRefused(Halted):
    """A sink refuses an output for what is in it, and would refuse it again: the policy of its Output decides.

    ``answer``: the reason alone. ``index``: of the output among those that were written; the ones before it are
    written, those behind it are not. ``key``: by which a web service knows it again.
    """

    def __init__(
        self,
        answer: str = "",
        advice: str = "",
        *,
        index: int = 0,
        key: str = "",
        code: HaltCode = HaltCode.SINK_REFUSES,
        **fields: Any,
    ) -> None:
        super().__init__(answer + advice, code=code, **fields)
        self.answer, self.index, self.key = answer, index, key

    def plain(self) -> Plain:
        """Return the same, with ``answer``, ``index`` and ``key``."""
        return {**super().plain(), "answer": self.answer, "index": self.index, "key": self.key}

    @classmethod
    def from_plain(cls, plain: PlainRead, text: str | None = None) -> Self:
        """Return an error of this class as ``plain`` has it."""
        error = super().from_plain(plain, text)
        error.answer, error.index, error.key = plain.get("answer", ""), plain.get("index", 0), plain.get("key", "")
        return error


class StoreCorrupted(FrameworkError):
    """The local store cannot be read or contradicts the changelog: wipe it (by rename) and restore."""


class OffsetOutOfRange(FrameworkError):
    """A read or trim named an offset that the log does not hold (before its start or beyond its end)."""


def exit_code(error: Exception, *, worker: bool = False) -> ExitCode:
    """Return the exit code after an error. A ``worker`` halts on a ConfigError: a restart would not help it."""
    match error:
        case ConfigError():
            return ExitCode.HALTED if worker else ExitCode.USAGE
        case Fenced():
            return ExitCode.FENCED
        case Halted():
            return ExitCode.HALTED
        case _:
            return ExitCode.FAILED
