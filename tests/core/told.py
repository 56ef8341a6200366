"""Processes of tasks whose events and actions become lines of a scenario."""

from typing import Any, Protocol

from grete.core import actions as do
from grete.core import events as on
from tests.core.deterministic.scenario import Logical
from tests.core.scenario import Scenario
from tests.verification.simulation.step_text import action_text, event_text


class Listener(Protocol):
    """The collector of the lines."""

    lines: list[str]
    seen: set[type]  # events and actions

    def say(self, task: str, sign: str, text: str) -> None:
        """Take a line."""
        ...

    def task_name(self, producer: int) -> str:
        """Return the name of the task with this producer id."""
        ...


class Told(Scenario):
    """One process of a task; each event and each action becomes a line."""

    script: Listener
    name: str

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.answers = True  # to what it appends to its changelog
        self.outside_open: list[str] = []  # what a sink of aligned mode holds back
        self.outside_frozen: list[str] = []

    def _tell(self, event: on.Event) -> None:
        self.script.seen.add(type(event))
        text = event_text(event, self.script.task_name)
        if text is not None:
            self.script.say(self.name, "<", text)
        super()._tell(event)

    def _perform(self, action: do.Action) -> None:
        self.script.seen.add(type(action))
        held = " – held" if type(action) in self.hold else ""
        self.script.say(self.name, ">", action_text(action, self.script.task_name, self._spilled.__getitem__) + held)
        super()._perform(action)

    def _answer(self, action: do.Action) -> None:
        if isinstance(action, do.Freeze):
            self.outside_frozen, self.outside_open = self.outside_open, []
        elif isinstance(action, do.DropOpen):
            self.outside_open = []
        elif isinstance(action, do.AppendChangelog):
            if action.with_outputs and self.outside_frozen:
                self.script.lines.append(f"outside of the job: {' '.join(self.outside_frozen)}")
            if not self.answers:
                self.log.append(self.task.changelog, *action.before, action.value)
                return
        super()._answer(action)


class ToldLogical(Told, Logical):
    """A deterministic task. What a sink has sent to topics outside of the job becomes a line, too."""

    def _answer(self, action: do.Action) -> None:
        before = len(self.outside)
        super()._answer(action)
        if self.outside[before:]:
            self.script.lines.append(f"outside of the job: {' '.join(self.outside[before:])}")
