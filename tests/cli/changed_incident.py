"""An incident that somebody has changed who knows the format."""

import json
import zipfile
from pathlib import Path
from typing import Any, Self

from grete.replay.incident.file import MANIFEST, digest_of


class IncidentChanged:
    """A copy of an incident, changed by somebody who knows the format."""

    def __init__(self, source: Path, target: Path) -> None:
        self._target = target
        with zipfile.ZipFile(source) as packed:
            self.parts = {name: packed.read(name) for name in packed.namelist()}
        self.manifest: dict[str, Any] = json.loads(self.parts.pop(MANIFEST))

    def empty(self, part: str) -> None:
        """Let a part hold no rows."""
        self.parts[part] = b"\x90"
        self.manifest["digests"][part] = digest_of(b"\x90")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with zipfile.ZipFile(self._target, "w") as packed:
            packed.writestr(MANIFEST, json.dumps(self.manifest))
            for name, data in self.parts.items():
                packed.writestr(name, data)
