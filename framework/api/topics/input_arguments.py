"""Checks of the arguments of inputs and outputs, for topics inside and outside of the job."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from grete.api.sinks.files import Files
from grete.api.topics.deduplicate import ById, BySequence
from grete.api.topics.topic import Input, Output, Topic, TopicPattern
from grete.errors import GraphError

MS_MAX = 1 << 62  # of a time or a span, in ms: what is added to it stays an INT64


def check_arguments(where: str, source: Input[Any, Any], stage: str) -> None:
    """Raise GraphError if an argument of an input is none that it can be. ``where``: names the input."""
    known = source.start in ("earliest", "latest")
    if not known and not (isinstance(source.start, datetime) and source.start.tzinfo is not None):
        raise GraphError(
            f"{where}: start={source.start!r}: need 'earliest', 'latest' or a datetime with a time zone, such as "
            "datetime(2026, 11, 1, tzinfo=UTC)",
            stage=stage,
        )
    if source.deduplicate is not None and not isinstance(source.deduplicate, (ById, BySequence)):
        raise GraphError(f"{where}: deduplicate={source.deduplicate!r}: need ById(…) or BySequence(…)", stage=stage)
    if type(source.priority) is not int:
        raise GraphError(f"{where}: priority={source.priority!r}: need an int; the highest is read first", stage=stage)
    if source.time not in ("record", "intake", "none") and not callable(source.time):
        raise GraphError(
            f"{where}: time={source.time!r}: need 'record', 'intake', 'none' or a function of the value, for instance "
            'time=lambda click: click["at"]',
            stage=stage,
        )
    if type(source.out_of_order_ms) is not int or not 0 <= source.out_of_order_ms < MS_MAX:
        raise GraphError(
            f"{where}: out_of_order_ms={source.out_of_order_ms!r}: need an int of 0 ms or more", stage=stage
        )
    if source.idle_ms is not None and (type(source.idle_ms) is not int or not 1 <= source.idle_ms < MS_MAX):
        raise GraphError(f"{where}: idle_ms={source.idle_ms!r}: need an int of 1 ms or more", stage=stage)


def check_errors(where: str, output: Output[Any, Any], stage: str, *, deterministic: bool) -> None:
    """Raise GraphError for a policy of an output of which none may be set aside. ``where``: names the output."""
    if output.errors == "fail":
        return
    if isinstance(output.target, (Topic, TopicPattern, Files)):
        raise GraphError(f"{where}: a topic and files refuse no output: leave errors= out", stage=stage)
    if deterministic:
        raise GraphError(
            f"{where}: errors={output.errors!r} in deterministic mode: a letter would depend on what the sink answers, "
            'and not on records alone. Send what goes there to a stage with mode = "aligned" behind this one',
            stage=stage,
        )


def refuse_silence(sources: Collection[Input[Any, Any]], stage: str) -> None:
    """Raise GraphError if none of a stage's inputs tells the time."""
    if all(source.time == "none" for source in sources):
        raise GraphError(
            f"stage {stage!r}: each of its inputs has time='none': event time would never move on. Leave it out of one",
            stage=stage,
        )


def times_of(sources: Collection[Input[Any, Any]], pinned: Mapping[str, str]) -> dict[str, str]:
    """Return topic → which time its records have, of those that have another than their timestamp.

    Where its author says nothing, an input goes on as its job began (``pinned``). A new one that is read first tells no
    time beside one that does: its rows are mostly newer than a stream that is behind the clock.
    """
    others = any(each.time != "none" if each.says_time else not each.bootstrap for each in sources)
    times: dict[str, str] = {}
    for each in sources:
        name = each.topic.name
        time: str = each.time if isinstance(each.time, str) else "value"
        if not each.says_time:
            known = pinned.get(name)
            time = known if known in ("record", "none") else "none" if each.bootstrap and others else time
        times[name] = time
    return {name: time for name, time in times.items() if time != "record"}
