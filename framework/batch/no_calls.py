"""Code that runs again asks no service unless it is told to: a call whose result is not recorded is an error."""

from collections.abc import Callable
from typing import NoReturn

from grete.api.tasks.calls import AnyCall
from grete.errors import ConfigError


class NoCalls:
    """A Caller that makes no calls. ``refused``: the error, once there was one, for the code may have caught it."""

    def __init__(self, refuse: Callable[[str], ConfigError]) -> None:
        """``refuse`` returns the error for a call, by its name."""
        self._refuse = refuse
        self.refused: ConfigError | None = None

    def begin(self, call: AnyCall, _args: object, _kwargs: object) -> NoReturn:
        """Raise ConfigError."""
        self.refused = self._refuse(call.name)
        raise self.refused


def not_recorded(stage: str, why: str) -> ConfigError:
    """Return the error of a stage whose calls could only be made again."""
    return ConfigError(
        f"stage {stage} {why}: give --make-calls, and the audit makes these calls again, at least one for each record "
        "that makes one. What has come of them differs if the service answers otherwise now",
        stage=stage,
    )
