"""Parts of pages that are made from the code when the site is built: `<!-- generate: NAME -->` on a line of its own."""

import re
from collections.abc import Callable

from mkdocs.exceptions import PluginError

from docs.hooks import (
    commands,
    events,
    exits,
    halt_codes,
    metadata_keys,
    metrics,
    public_api,
    settings_page,
    verification,
)

PARTS: dict[str, Callable[[], str]] = {
    "api": public_api.part,
    "cli": commands.part,
    "errors": exits.part,
    "faults": verification.faults,
    "halts": halt_codes.part,
    "invariants": verification.invariants,
    "log-lines": events.part,
    "metadata": metadata_keys.part,
    "metrics": metrics.part,
    "mutants": verification.mutants,
    "rare-things": verification.rare_things,
    "settings": settings_page.part,
    "unkindnesses": verification.unkindnesses,
}
_MARKER = re.compile(r"^<!-- generate: (.*) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """Return the text with its generated parts. Raises PluginError for a part that nothing makes."""
    unknown = set(_MARKER.findall(text)) - set(PARTS)
    if unknown:
        raise PluginError(f"nothing generates {', '.join(sorted(unknown))}: known are {', '.join(PARTS)}")
    return _MARKER.sub(lambda marker: PARTS[marker[1]](), text)
