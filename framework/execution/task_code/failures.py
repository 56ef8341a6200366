"""Policies for a record, timer, window, join or output that fails: stop the task, write a dead letter, or drop it.

What the call had done is undone before one of these is called. Errors of the machine, and mistakes that no record can
be blamed for, stop the task whatever the policy.
"""

from bdb import BdbQuit
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from grete.api.serdes.serde import decode_error, shortened
from grete.api.stateful.declaration import Give, Stateful
from grete.api.tasks.methods import ReturnError
from grete.api.tasks.timers import Clock, Timer
from grete.api.topics.topic import DeadLetter, Errors, Input, Topic, TopicPattern
from grete.errors import FrameworkError, OutputRefused, SerdeError, TaskError
from grete.execution.records.decoding import decoders, headers_of
from grete.execution.records.user_traceback import user_line, user_traceback
from grete.execution.sinks.refusals import Refusal, SetAside
from grete.execution.sinks.sink_targets import target_of
from grete.execution.task_code.site import Site
from grete.halts import HaltCode
from grete.protocol.record_batch import RecordBatch
from grete.quoting import key_text, named_error

T = TypeVar("T")
Refuse = Callable[[RecordBatch, int, Exception], None]  # a record of a batch, by its index
DueLetter = tuple[bytes, bytes | None, int, dict[str, str]]  # key, value, timestamp, and which timer or window it was


MISTAKES = (ReturnError, BdbQuit)  # of the code, whatever the record; the second: a debugger that finds no terminal


class TimerError(TaskError):
    """A timer, window or join failed, not the record that moved the time: it says itself where."""


def is_ours(error: Exception) -> bool:
    """Return whether the error is not the record's: the machine or a timer is in trouble, not this input."""
    return isinstance(error, TimerError) or (isinstance(error, FrameworkError) and not isinstance(error, TaskError))


# --- Records ---


def refuser(site: Site, declared: Input[Any, Any]) -> Refuse:
    """Return the function that sets a failed record aside, by the input's policy; another error is raised."""
    aside: Refuse
    if declared.errors == "fail":

        def aside(batch: RecordBatch, index: int, error: Exception) -> None:
            raise failure(site, declared, batch, index, error) from error

    elif declared.errors == "drop":

        def aside(batch: RecordBatch, index: int, error: Exception) -> None:
            site.failed.add(str(failure(site, declared, batch, index, error)))

    else:
        aside = _letter_writer(site, declared, declared.errors)

    def refuse(batch: RecordBatch, index: int, error: Exception) -> None:
        if is_ours(error):
            raise error
        if isinstance(error, MISTAKES):
            raise failure(site, declared, batch, index, error) from error
        aside(batch, index, error)

    return refuse


def failure(
    site: Site, declared: Input[Any, Any], batch: RecordBatch, index: int | None, error: Exception
) -> FrameworkError:
    """Return the TaskError that says where the record (None: the batch) failed; errors of ours pass as they are."""
    if isinstance(error, FrameworkError) and is_ours(error):
        return error
    if index is None:
        which = f"offsets {batch.offset_at(0)} to {batch.offset_at(-1)}, batch of {len(batch.keys)} records"
        cause = error
    else:
        which = f"offset {batch.offset_at(index)}, record {batch.first + index}"
        cause = _cause(declared, batch, index, error)
    passable = declared.errors != "fail" or isinstance(cause, MISTAKES)
    way = "" if passable else ways("such records", "Input")
    where = f"{site.task.where}: topic {declared.topic.name} ({batch.source}), {which}"
    return TaskError(
        f"{where}: {named_error(cause)}{user_line(error)}{way}",
        stage=site.task.stage.name,
        partition=batch.source,
        offset=None if index is None else batch.offset_at(index),
    )


def ways(what: str, declaration: str) -> str:
    """Return the end of an error that stops a task, which may go on instead."""
    return (
        f"; to send {what} to a dead-letter topic: {declaration}(…, errors=DeadLetter(Topic(…))); to drop and count "
        'them: errors="drop"'
    )


def _cause(declared: Input[Any, Any], batch: RecordBatch, index: int, error: Exception) -> Exception:
    """Return the SerdeError if the record cannot be decoded, else the error: loops call bare functions of serdes."""
    cell = None if batch.headers is None else batch.headers[index]
    topic = declared.topic
    ends = ((topic.key, batch.keys[index]), (topic.value, batch.values[index]))
    for decode, (serde, data) in zip(decoders(topic), ends, strict=True):
        try:
            decode(data, cell)
        except Exception as refusal:  # noqa: BLE001  # a serde may raise anything
            if is_ours(refusal):
                return error
            return refusal if isinstance(refusal, SerdeError) else decode_error(serde, data, refusal)
    return error


def _letter_writer(site: Site, declared: Input[Any, Any], policy: DeadLetter) -> Refuse:
    """Return the function that sends a failed record to the dead-letter topic.

    A letter is not dated ahead of the clock: a broker may take no such record, and the letter is where it is to go.
    """
    send = site.outputs.dead_letter(policy.topic)

    def write(batch: RecordBatch, index: int, error: Exception) -> None:
        cell = None if batch.headers is None else batch.headers[index]
        where = {
            "grete.topic": declared.topic.name,
            "grete.source": str(batch.source),
            "grete.offset": str(batch.offset_at(index)),
            "grete.index": str(batch.first + index),
        }
        if batch.logical is not None:  # made again, an output is the same: a batch begins elsewhere
            del where["grete.index"]
        now, own = site.now() if batch.logical is None else batch.logical[0][index] // 1_000, batch.timestamps[index]
        if own > now and declared.time in ("record", "none"):  # else the value has it, or there is none
            where["grete.timestamp"] = str(own)
        added = _told(site, _cause(declared, batch, index, error), error, where)
        send(batch.keys[index], batch.values[index], min(own, now), (*headers_of(cell), *added))

    return write


def _told(site: Site, cause: Exception, error: Exception, where: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """Count a letter, and return the headers that it has of its own, ``grete.error`` first.

    They say all, whatever show_records is: the letter has the record itself, and must be the same if made again.
    """
    site.failed.letters += 1
    told = {
        "grete.error": f"{type(cause).__name__}: {cause}",
        "grete.stage": site.task.stage.name,
        "grete.partition": str(site.task.partition),
        **where,
    }
    shown = user_traceback(error, whole=True) if site.clock is None else None  # made again, its file may have moved
    if shown is not None:
        told["grete.traceback"] = shown
    return [(name, text.encode(errors="replace")) for name, text in told.items()]


# --- Outputs that their sinks refuse ---


def output_refusers(site: Site) -> dict[str, SetAside]:
    """Return target → the function that sets a refused output aside; of "fail" there is none."""
    declared = [(name, each.target, each.errors) for name, each in site.task.stage.outputs.items()]
    return {
        target_of(name, target): _output_aside(site, name, policy)
        for name, target, policy in declared
        if policy != "fail" and not isinstance(target, Topic | TopicPattern)
    }


def _output_aside(site: Site, attribute: str, policy: Errors) -> SetAside:
    if not isinstance(policy, DeadLetter):
        return lambda refused: site.failed.add(f"{site.task.where}: output {attribute!r}: {refused.error.answer}")
    send = site.outputs.dead_letter(policy.topic)

    def write(refused: Refusal) -> None:
        where = {
            "grete.output": attribute,
            "grete.sink": refused.sink,
            "grete.checkpoint": str(refused.checkpoint_id),
            "grete.number": str(refused.number),
        }
        if refused.error.key:
            where["grete.idempotency_key"] = refused.error.key
        answer = OutputRefused(refused.error.answer, code=HaltCode.UNNAMED)  # it has halted nothing
        send(None, refused.raw, site.now(), _told(site, answer, answer, where))

    return write


# --- Timers, windows and joins ---


def timer_name(clock: Clock, key: object) -> str:
    """Return the name of one of the task's own timers in errors."""
    text = key_text(key) if isinstance(key, str) else shortened(key)
    return f"timer {text}" if clock == "event" else f"wall-clock timer {text}"


def guarded_timer(
    site: Site, policy: Errors, encode: Callable[[Any], bytes], call: Callable[[Timer[Any]], None]
) -> Callable[[Timer[Any]], None]:
    """Return ``call``, which gives a timer to ``on_timer``, with the error policy of Timers(); ``encode``: of keys."""

    def letter(timer: Timer[Any]) -> DueLetter:
        return encode(timer.key), None, timer.at, {"grete.timer": str(timer.at)}

    if policy == "fail":
        return call
    aside = _aside(site, policy, lambda timer: f"{timer_name(timer.clock, timer.key)} at {timer.at}", letter)

    def guarded(timer: Timer[Any]) -> None:
        _guarded(site, lambda: call(timer), aside(timer))

    return guarded


def guarded_result(site: Site, declared: Stateful, call: Give) -> Give:
    """Return ``call``, which gives a result that is due to the task, with the error policy of its window or join."""
    if declared.errors == "fail":
        return call
    aside = _aside(site, declared.errors, declared.which, declared.letter)

    def guarded(result: Any, timestamp: int | None) -> None:
        _guarded(site, lambda: call(result, timestamp), aside(result))

    return guarded


def _guarded(site: Site, call: Callable[[], None], aside: Callable[[Exception], None]) -> None:
    """Make a call that leaves nothing if it fails, but for what ``aside`` does about it."""
    site.mark()
    try:
        call()
    except Exception as error:
        site.undo()
        if is_ours(error) or isinstance(error, MISTAKES):
            raise
        aside(error)
    else:
        site.keep()


def _aside(
    site: Site, policy: Errors, which: Callable[[T], str], letter: Callable[[T], DueLetter]
) -> Callable[[T], Callable[[Exception], None]]:
    """Return the function called before the method, which may change a value; it returns the step after a failure."""
    if isinstance(policy, DeadLetter):
        send = site.outputs.dead_letter(policy.topic)

        def with_letter(due: T) -> Callable[[Exception], None]:
            key, value, timestamp, told = letter(due)
            timestamp = min(timestamp, site.now())
            return lambda error: send(key, value, timestamp, _told(site, error, error, told))

        return with_letter

    def with_count(due: T) -> Callable[[Exception], None]:
        where = f"{site.task.where}: "
        return lambda error: site.failed.add(f"{where}{which(due)}: {named_error(error)}{user_line(error)}")

    return with_count
