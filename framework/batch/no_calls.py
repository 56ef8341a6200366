"""An audit asks no service unless it is told to: a call whose result is not recorded is an error."""

from typing import Any, NoReturn

from grete.api.tasks.calls import AnyCall
from grete.errors import ConfigError


class NoCalls:
    """A Caller that makes no calls."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def begin(self, call: AnyCall, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> NoReturn:
        """Raise ConfigError."""
        raise not_recorded(
            self._stage, f"calls {call.name} for a record of the history that a backfill began with, which records none"
        )


def not_recorded(stage: str, why: str) -> ConfigError:
    """Return the error of a stage whose calls could only be made again."""
    return ConfigError(
        f"stage {stage} {why}: give --make-calls, and the audit makes these calls again, at least one for each record "
        "that makes one. What has come of them differs if the service answers otherwise now",
        stage=stage,
    )
