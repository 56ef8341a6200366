"""Mistakes with outputs that leave to files ahead of their commit (D5)."""

from typing import Any

from grete.api.sinks.sink import Released
from grete.execution.sinks.early_plan import EarlyPlan
from grete.execution.sinks.early_release import EarlyReleases, OutputQueue
from tests.verification.simulation.forms import with_early_sinks
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.sink import EarlyAccount


def _has_outputs(plan: Plan) -> bool:
    written = plan.files if plan.settings.sink_delivery == "early" else plan.out_partitions
    return bool(set(written) & plan.topology.deterministic)


def _early(plan: Plan) -> Plan:
    return plan if plan.settings.sink_delivery == "early" else with_early_sinks(plan)


def _zombies(plan: Plan) -> Plan:
    return _early(full_of("zombie", "crash", "freeze")(plan))


@mutant(EarlyAccount, "release", "release", "exactly once", "time", shows=_has_outputs, focus=_zombies, world="mixed")
def release_from_anywhere(_release: Any) -> Any:
    """A sink takes a release of any generation, and does not look at which seq it goes on."""

    def mistaken(self: EarlyAccount, _generation: int, _after: int, upto: Released, values: Any) -> None:
        self._released(self.at, upto, values)
        self.at = upto

    return mistaken


@mutant(EarlyAccount, "take_over", "halted", shows=_has_outputs, focus=_zombies, world="deterministic")
def zombies_release(_take_over: Any) -> Any:
    """A sink takes releases of lower generations, if they go on at its seq: the successor finds it elsewhere."""

    def mistaken(self: EarlyAccount, _generation: int) -> Released:
        return self.at

    return mistaken


@mutant(EarlyPlan, "take_over", "halted", shows=_has_outputs, focus=_early, world="deterministic")
def sink_not_asked(take_over: Any) -> Any:
    """A restarted task does not ask its sink how far that is, and releases what is there already."""

    def mistaken(self: EarlyPlan, sink: Any) -> Any:
        yield from take_over(self, sink)
        self._at[id(sink)] = Released(self._early._seq, 0, -1)

    return mistaken


@mutant(
    OutputQueue,
    "let_out",
    "time",
    "exactly once",
    "release",
    "halted",
    shows=_has_outputs,
    focus=_early,
    world="mixed",
)
def released_as_soon_as_made(let_out: Any) -> Any:
    """Outputs leave as soon as they are made, though others of their time may follow, or their decision is in doubt."""

    def mistaken(self: OutputQueue, _t: int) -> None:
        let_out(self, 1 << 62)

    return mistaken


@mutant(EarlyReleases, "save", "release", "liveness", "halted", shows=_has_outputs, focus=_early, world="deterministic")
def unreleased_forgotten(save: Any) -> Any:
    """Outputs that a sink lacks at a freeze are not kept: a successor begins behind them."""

    def mistaken(self: EarlyReleases) -> None:
        outputs, self.queue.outputs = self.queue.outputs, []
        before, self._seq = self._seq, self._seq + len(outputs)
        save(self)
        self.queue.outputs, self._seq = outputs, before

    return mistaken
