"""The base class of a stage's code."""

from typing import Any, ClassVar

from grete.api.tasks.context import Context
from grete.api.tasks.mode import Mode
from grete.api.tasks.own_names import refuse_hiding


class Task:
    """The code of one stage. A subclass has Input, Output, Store, Timers, windows and joins as class attributes.

    Its methods:
    - ``process(self, record)`` for each record, or ``process_batch(self, records)`` for a list of them, or a method
      ``@on(topic)`` for the records of each input, not two of these;
    - ``on_timer(self, timer)`` if it declares Timers, ``on_window(self, window)`` if it declares a window,
      ``on_join(self, pair)`` if it declares a join; ``on_commit(self, tokens)`` if it asks for checkpoints.
    They are plain functions that return None: a coroutine, a generator or a value would be dropped, so it is refused.
    Only ``process``, and a method ``@on(topic)``, may be an ``async def``, to await Calls; ``in_flight`` bounds the
    records that do so at a time.

    A new instance is made at each start and after each rollback: only stores are durable, other attributes are caches.
    Keep to one thread, and touch nothing outside but through declared outputs: what else it does may happen twice.
    """

    name: ClassVar[str]  # of the stage; by default the class name in kebab case: CountWords → count-words
    renamed_from: ClassVar[str]  # the name that the stage had first: its topics, directories and state have it for good
    mode: ClassVar[Mode]  # of the stage; by default the job's
    partitions: ClassVar[int]  # of the stage, each a task; by default the job's
    in_flight: ClassVar[int] = 64  # records of a task whose async process has begun and has not taken effect
    ctx: Context = Context()  # the time and random numbers to use; each instance has its own

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class that hides what every task has. Raises GraphError."""
        super().__init_subclass__(**options)
        refuse_hiding(cls, vars(Task))

    def init(self) -> None:
        """Prepare: stores and timers hold the restored state; sending is not possible yet."""

    def on_commit(self, tokens: tuple[str, ...]) -> None:
        """Learn that what the records of these ``ctx.commit(token)`` have done is committed, and survives any crash.

        Tokens come in the order in which they were asked first. A crash between commit and call leaves the call out.
        Stores may be read; to change one, or to send, is refused: it would belong to no record.
        """

    def close(self) -> None:
        """Release what ``init`` took. Called at a graceful end and before a rollback, never after a crash."""
