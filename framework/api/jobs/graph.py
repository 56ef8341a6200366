"""The declarations of one task class as plain data, checked on their own; ``grete.api.jobs.job`` joins them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grete.api.jobs.names import checked_count, checked_name, refuse_clashes
from grete.api.sinks.external import External
from grete.api.sinks.files import Files
from grete.api.sinks.http import Http
from grete.api.sinks.table import Table
from grete.api.stateful.declaration import Stateful
from grete.api.stateful.joins import Join
from grete.api.stateful.windows import WindowStore, late_outputs
from grete.api.store import Store
from grete.api.tasks.calls import AnyCall, BatchCall, Call, check_calls
from grete.api.tasks.handlers import Declared, check_handlers, declared_in, handlers_of
from grete.api.tasks.methods import is_async, refuse_arguments, refuse_deferred
from grete.api.tasks.mode import MODES, Mode
from grete.api.tasks.task import Task
from grete.api.tasks.timers import Clock, Timers
from grete.api.topics.input_arguments import check_arguments, check_errors, refuse_silence, times_of
from grete.api.topics.topic import DeadLetter, Errors, Input, Output, StartPosition, Topic, TopicPattern
from grete.core.graph.topology import Topology
from grete.errors import ConfigError, GraphError

# The runtime keeps state of its own beside the user's: no user store begins with "_" (checked_name).
RESERVED_STORES = {"_timers": 0, "_meta": 1, "_outbox": 2}
FIRST_USER_STORE = 10  # ids below are Grete's own stores: there is room for more of them

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class StageGraph:
    """One stage. Dicts: attribute of the task → declaration, in order of declaration, base classes first."""

    name: str
    ordinal: int
    task: type[Task]
    inputs: dict[str, Input[Any, Any]]
    outputs: dict[str, Output[Any, Any]]
    stores: dict[str, Store[Any, Any]]
    stateful: dict[str, Stateful]  # windows, joins and versioned stores
    timers: dict[Clock, str]  # the attributes of Timers(), by the clock that they go by
    batch: bool  # process_batch instead of process
    handlers: dict[str, str] = field(default_factory=dict)  # topic → the method that takes it, instead of process
    late_outputs: Mapping[str, str] = field(default_factory=dict)  # window → the output that its late records go to
    awaits: bool = False  # process, or one of these, is an async def
    calls: dict[str, AnyCall] = field(default_factory=dict)
    mode: Mode = "aligned"
    partitions: int = 1  # as many tasks
    pinned_ids: Mapping[str, int] = field(default_factory=dict)  # store or window name → the id that its state has
    dropped_ids: Mapping[str, int] = field(default_factory=dict)  # likewise, of stores that grete apply has dropped
    pinned_counts: Mapping[str, int] = field(default_factory=dict)  # topic outside → partitions that the job writes to
    pinned_times: Mapping[str, str] = field(default_factory=dict)  # topic → the time that its records have had

    def method_of(self, topic: str) -> str:
        """Return the name of the method that takes the records of a topic."""
        return "process_batch" if self.batch else self.handlers.get(topic, "process")

    def store_ids(self) -> dict[str, int]:
        """Return store name → id: those reserved, those pinned; new ones follow in order of declaration."""
        ids = {**RESERVED_STORES, **self.pinned_ids}
        fresh = max(FIRST_USER_STORE - 1, *ids.values(), *self.dropped_ids.values()) + 1
        new = [name for name in self.store_names() if name not in self.pinned_ids]
        return ids | {name: fresh + index for index, name in enumerate(new)}

    def store_names(self) -> list[str]:
        """Return the names of stores, of those of windows and joins, of what inputs remember, as declared."""
        return [store.name for store in self.all_stores()]

    def all_stores(self) -> list[Store[Any, Any]]:
        """Return the stores, those of windows and joins, and those of inputs that drop duplicates."""
        theirs = (store for each in self.stateful.values() for store in each.stores().values())
        return [*self.stores.values(), *theirs, *self.seen.values()]

    @property
    def windows(self) -> dict[str, WindowStore[Any, Any]]:
        """Attribute → window."""
        return {attribute: each for attribute, each in self.stateful.items() if isinstance(each, WindowStore)}

    @property
    def seen(self) -> dict[str, Store[Any, Any]]:
        """Topic → the store of what its input remembers, to drop duplicates."""
        return {
            declared.topic.name: declared.deduplicate.store(f"seen-{declared.topic.name}")
            for declared in self.inputs.values()
            if declared.deduplicate is not None
        }

    @property
    def shown(self) -> str:
        """The name that its author calls it by; ``name`` is the one that it had first."""
        return shown_name(self.task)

    @property
    def follows_job(self) -> bool:
        """Whether it has as many partitions as its job says, and no number of its own."""
        return getattr(self.task, "partitions", None) is None

    def declared_with(self, partitions: int, *, alone: bool = False) -> str:
        """Return the code by which the stage would have another number of partitions; ``alone``: no other stage."""
        if self.follows_job and not alone:
            return f"Job(…, partitions={partitions})"
        return f"partitions = {partitions} in class {self.task.__name__}"

    def check_partition(self, partition: int) -> "StageGraph":
        """Return the stage if it has a task of this number. Raises ConfigError."""
        if not 0 <= partition < self.partitions:
            raise ConfigError(
                f"stage {self.name!r} has partitions 0 to {self.partitions - 1}, not {partition}", stage=self.name
            )
        return self

    @property
    def goes_by_time(self) -> bool:
        """Whether event time is part of what the stage does (E1)."""
        by_time = any(each.by_time for each in self.stateful.values())
        return bool(self.seen or self.expiring_ids()) or "event" in self.timers or by_time

    def expiring_ids(self) -> frozenset[int]:
        """Return the ids of the stores whose entries expire."""
        ids = self.store_ids()
        return frozenset(ids[store.name] for store in self.stores.values() if store.ttl_ms is not None)

    def topics_read(self) -> list[Topic[Any, Any]]:
        """Return the topics of all inputs."""
        return [declared.topic for declared in self.inputs.values()]

    def topics_read_first(self) -> frozenset[str]:
        """Return the names of the topics that are read to their ends before the others (A2c)."""
        return frozenset(declared.topic.name for declared in self.inputs.values() if declared.bootstrap)

    def priorities(self) -> dict[str, int]:
        """Return topic → the priority with which it is read, of those that have another than 0."""
        return {each.topic.name: each.priority for each in self.inputs.values() if each.priority}

    def starts(self) -> dict[str, StartPosition]:
        """Return topic → where a job begins to read it, of those that do not begin with their first record."""
        return {each.topic.name: each.start for each in self.inputs.values() if each.start != "earliest"}

    def topics_broadcast(self) -> frozenset[str]:
        """Return the names of the topics of which each task reads every record (A2d)."""
        return frozenset(declared.topic.name for declared in self.inputs.values() if declared.broadcast)

    def topics_timed(self) -> dict[str, str]:
        """Return topic → which time its records have, of those that have another than their timestamp."""
        return times_of(self.inputs.values(), self.pinned_times)

    def topics_written(self) -> list[Topic[Any, Any]]:
        """Return the topics of all outputs but files, tables and dead letters."""
        return [declared.target for declared in self.outputs.values() if isinstance(declared.target, Topic)]

    def patterns(self) -> list[TopicPattern[Any, Any]]:
        """Return the outputs whose topics the records name."""
        return [each.target for each in self.outputs.values() if isinstance(each.target, TopicPattern)]

    def inputs_by_log_topic(self, topology: Topology) -> dict[str, Input[Any, Any]]:
        """Return topic of the log → the input that reads it: a stream's topic has a name of the job's own."""
        inputs = {declared.topic.name: declared for declared in self.inputs.values()}
        streams = topology.streams_into(self.ordinal)
        internal = {stream.topic: inputs[stream.user_topic] for stream in streams}
        return internal | {topic: inputs[topic] for topic in topology.externals_of(self.ordinal)}

    def declared_timers(self, clock: Clock) -> Timers:
        """Return the Timers() of a clock, as the class declares it; there is one."""
        declared: Timers = getattr(self.task, self.timers[clock])
        return declared

    def policies(self) -> dict[str, Errors]:
        """Return attribute → error policy of all inputs, windows, joins and of Timers()."""
        declared: dict[str, Input[Any, Any] | Stateful | Timers] = {**self.inputs, **self.stateful}
        declared |= {attribute: self.declared_timers(clock) for clock, attribute in self.timers.items()}
        return {attribute: each.errors for attribute, each in declared.items()}

    @property
    def undoes(self) -> bool:
        """Whether an error policy takes back what a call has done."""
        return any(policy != "fail" for policy in self.policies().values())

    def dead_letters(self) -> list[Topic[Any, Any]]:
        """Return the topics of all dead letters."""
        policies = *self.policies().values(), *(output.errors for output in self.outputs.values())
        return [policy.topic for policy in policies if isinstance(policy, DeadLetter)]


def stage_name(task: type[Task]) -> str:
    """Return the name by which a stage's topics, directories and state are found: the one that it had first."""
    return getattr(task, "renamed_from", None) or shown_name(task)


def shown_name(task: type[Task]) -> str:
    """Return the class attribute ``name``, or the class name in kebab case: CountWords → count-words."""
    return getattr(task, "name", None) or _WORD_START.sub("-", task.__name__).lower()


def describe(task: object, ordinal: int, mode: Mode = "aligned", partitions: int = 1) -> StageGraph:
    """Return the declarations of a task class; ``mode`` and ``partitions``: the job's.

    Raises GraphError if they contradict each other.
    """
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise GraphError(f"stage {ordinal} is {task!r}: stages are subclasses of Task, not instances or names")
    name = checked_name("stage", stage_name(task))
    checked_name("stage", shown_name(task))
    declared = declared_in(task)
    handlers = handlers_of(f"stage {name!r} ({task.__name__})", declared)
    own = getattr(task, "partitions", None)
    timers = [(attribute, value) for attribute, value in declared.items() if isinstance(value, Timers)]
    outputs = {attribute: value for attribute, value in declared.items() if isinstance(value, Output)}
    batch = callable(declared.get("process_batch"))
    windows = [value for value in declared.values() if isinstance(value, WindowStore)]
    stage = StageGraph(
        name=name,
        ordinal=ordinal,
        task=task,
        inputs={attribute: value for attribute, value in declared.items() if isinstance(value, Input)},
        outputs=outputs,
        stores={attribute: value for attribute, value in declared.items() if isinstance(value, Store)},
        stateful={attribute: value for attribute, value in declared.items() if isinstance(value, Stateful)},
        timers={each.clock: attribute for attribute, each in timers},
        batch=batch,
        handlers=handlers,
        late_outputs=late_outputs(f"stage {name!r} ({task.__name__})", windows, outputs, batch=batch),
        awaits=any(is_async(declared.get(each)) for each in ("process", *handlers.values())),
        calls={attribute: value for attribute, value in declared.items() if isinstance(value, Call | BatchCall)},
        mode=getattr(task, "mode", None) or mode,
        partitions=partitions if own is None else checked_count(f"stage {name!r}", own),
    )
    if stage.mode not in MODES:
        raise GraphError(f"stage {name!r}: mode = {stage.mode!r}: need one of {', '.join(MODES)}")
    _check_methods(stage, declared, [(each.clock, attribute) for attribute, each in timers])
    _check_ends(stage)
    _check_names(stage)
    return stage


def _check_methods(stage: StageGraph, declared: Declared, timers: list[tuple[Clock, str]]) -> None:
    """Refuse a task that lacks the method which its declarations call, or has two of a kind."""
    where = f"stage {stage.name!r} ({stage.task.__name__})"
    single, batch = callable(declared.get("process")), stage.batch
    if single and batch:
        raise GraphError(f"{where} has both process and process_batch: keep one")
    if stage.handlers:
        topics = [each.topic.name for each in stage.inputs.values()]
        check_handlers(where, stage.handlers, topics, "process" if single else "process_batch" if batch else None)
    elif not single and not batch:
        raise GraphError(
            f"{where} has no process method: define process(self, record) or process_batch(self, records), or a method "
            "with @on for each input; one that overrides such a method needs @on, too"
        )
    for clock, attribute in timers:
        if attribute != stage.timers[clock]:
            code = "Timers()" if clock == "event" else 'Timers(clock="wall")'
            raise GraphError(
                f"{where} declares {code} twice, {attribute!r} and {stage.timers[clock]!r}: keep one, tell timers "
                "apart by key"
            )
    if "wall" in stage.timers and stage.awaits:
        raise GraphError(
            f'{where} has an async process and declares Timers(clock="wall"), which fire between two records: send the '
            "results of the calls to a stage of its own with it"
        )
    if timers and not callable(declared.get("on_timer")):
        raise GraphError(f"{where} declares Timers() and has no on_timer(self, timer)")
    for each in stage.stateful.values():
        if each.method and not callable(declared.get(each.method)):
            kind, given = type(each).__name__, "pair" if isinstance(each, Join) else "window"
            raise GraphError(f"{where} declares a {kind} and has no {each.method}(self, {given})")
    refuse_deferred(where, declared, stage.handlers.values())
    refuse_arguments(where, stage.task, stage.handlers.values())
    if stage.awaits or stage.calls:
        by_order = [f"a {type(each).__name__}" for each in stage.stateful.values()]
        by_order += ["an input with deduplicate="] if stage.seen else []
        by_order += ["a store with ttl_ms="] if any(each.ttl_ms is not None for each in stage.stores.values()) else []
        check_calls(where, stage.calls, stage.task.in_flight, by_order, awaits=stage.awaits)


def _check_names(stage: StageGraph) -> None:
    """Refuse store names that clash: they are one namespace with windows and joins, and become directories."""
    stores = stage.store_names()
    for name in stores:
        checked_name(f"stage {stage.name!r}: store", name)
    own = [{store.name for store in each.stores().values()} for each in stage.stateful.values()]
    others = zip(stage.stateful.values(), own, strict=True)
    names = [*stores, *(each.name for each, theirs in others if each.name not in theirs)]
    refuse_clashes(f"stage {stage.name!r}: store", names, "give each its own name")
    renamed = [store.shown for store in stage.stores.values() if store.shown != store.name]
    for name in renamed:
        checked_name(f"stage {stage.name!r}: store", name)
    refuse_clashes(f"stage {stage.name!r}: store", [*names, *renamed], "the first name of a store is taken for good")


def _check_ends(stage: StageGraph) -> None:
    """Refuse a stage without inputs, and two inputs or two outputs that are one."""
    if not stage.inputs:
        raise GraphError(
            f"stage {stage.name!r} has no input: declare one as a class attribute, lines = Input(topic)",
            stage=stage.name,
        )
    for attribute, source in stage.inputs.items():
        if not isinstance(source.topic, Topic):
            raise GraphError(
                f"stage {stage.name!r}: input {attribute!r} is of {_meant(stage, source.topic, 'a Topic')}",
                stage=stage.name,
            )
        check_arguments(f"stage {stage.name!r}: input {attribute!r}", source, stage.name)
    refuse_silence(stage.inputs.values(), stage.name)
    of_sinks = {attribute: output.errors for attribute, output in stage.outputs.items()}
    for attribute, policy in {**of_sinks, **stage.policies()}.items():
        if policy not in ("fail", "drop") and not isinstance(policy, DeadLetter):
            raise GraphError(
                f"stage {stage.name!r}: {attribute!r}: errors={policy!r}: need 'fail', 'drop' or DeadLetter(topic)",
                stage=stage.name,
            )
    for attribute, sink in stage.outputs.items():
        if not isinstance(sink.target, (Topic, TopicPattern, Files, Table, Http, External)):
            raise GraphError(
                f"stage {stage.name!r}: output {attribute!r} is of "
                f"{_meant(stage, sink.target, 'a Topic, a TopicPattern, Files, a Table, Http or External')}",
                stage=stage.name,
            )
        deterministic = stage.mode == "deterministic"
        check_errors(f"stage {stage.name!r}: output {attribute!r}", sink, stage.name, deterministic=deterministic)
    refuse_clashes(
        f"stage {stage.name!r}: input topic", (topic.name for topic in stage.topics_read()), "declare the input once"
    )
    directories = (sink.target.directory for sink in stage.outputs.values() if isinstance(sink.target, Files))
    refuse_clashes(f"stage {stage.name!r}: output directory", directories, "one output per directory")
    names = (sink.target.name for sink in stage.outputs.values() if isinstance(sink.target, External))
    refuse_clashes(f"stage {stage.name!r}: External", names, "one output for each name", fold=str)
    tables = [sink.target for sink in stage.outputs.values() if isinstance(sink.target, Table)]
    for table in tables:
        if tables.count(table) > 1:
            raise GraphError(f"stage {stage.name!r}: two outputs are {table!r}: declare it once", stage=stage.name)


def _meant(stage: StageGraph, found: object, needed: str) -> str:
    """Return the end of an error about what is no ``needed``: an attribute of the class hides a topic of its name."""
    attributes = {**stage.inputs, **stage.outputs, **stage.stores, **stage.stateful}
    for attribute, declared in attributes.items():
        if declared is found:
            return (
                f"the {type(found).__name__} {attribute!r} of the same class, which hides what is called {attribute!r} "
                "outside of it: give the attribute another name"
            )
    return f"{found!r}: need {needed}"
