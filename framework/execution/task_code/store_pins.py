"""Declared stores by store id, pinned in a task's state: another declaration would read other data."""

from grete.api.jobs.graph import FIRST_USER_STORE, StageGraph
from grete.errors import ConfigError
from grete.execution.timing.reserved_stores import pin_key
from grete.stores.overlay.overlay_store import OverlayStore


class StorePins:
    """The pins of one task, in META of its state. ``where`` names the task in errors."""

    def __init__(self, stage: StageGraph, where: str, meta: OverlayStore) -> None:
        self._stage, self._where, self._meta = stage.name, where, meta
        self._names = {i: name for name, i in stage.store_ids().items() if i >= FIRST_USER_STORE}

    def check(self) -> None:
        """Raise ConfigError if a store id meant another store when the state was written."""
        for store_id, name in self._names.items():
            before = self._meta.get(pin_key(store_id))
            if before is not None and before != name.encode():
                raise ConfigError(
                    f"{self._where}: store {name!r} has id {store_id}, which was {before.decode()!r} when the state "
                    f"was written: declare {before.decode()!r} again as it was, it may stay unused",
                    stage=self._stage,
                )

    def save(self) -> None:
        """Pin what is not pinned yet."""
        for store_id, name in self._names.items():
            if self._meta.get(pin_key(store_id)) is None:
                self._meta.put(pin_key(store_id), name.encode())
