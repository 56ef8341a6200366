"""Troubles by name, each with what must come of it. docs/CHAOS.md has them all.

python -m tests.verification.chaos.scenarios NAME|all [--log embedded|kafka|kafka://host:port] [--seed 1]

Exit code 1 if one did not go as it must. What needs brokers that may be killed starts its own.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from grete.testing.broker import find_broker
from tests.verification.chaos import troubles_of_brokers, troubles_of_disks, troubles_of_workers
from tests.verification.chaos.scene import Failed

ON_ANY_LOG = troubles_of_workers.SCENARIOS
EMBEDDED = troubles_of_disks.SCENARIOS
ON_KAFKA = troubles_of_brokers.SCENARIOS


def run(name: str, log: str, seed: int, directory: Path) -> str:
    """Run one scenario; return what it did, in a line. Raises Failed. ``log``: embedded, or a broker's kafka:// url."""
    if name in ON_ANY_LOG:
        return ON_ANY_LOG[name](directory, log, seed)
    if name in EMBEDDED:
        return EMBEDDED[name](directory, seed)
    return ON_KAFKA[name](directory, seed)


def names_for(log: str) -> list[str]:
    """Return the scenarios that exist for a log."""
    return [*ON_ANY_LOG, *(EMBEDDED if log == "embedded" else ON_KAFKA)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for, a line each."""
    known = [*ON_ANY_LOG, *EMBEDDED, *ON_KAFKA]
    parser = argparse.ArgumentParser(
        prog="tests.verification.chaos.scenarios",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=[*known, "all"])
    parser.add_argument("--log", default="embedded")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    asked = parser.parse_args(arguments)
    names = names_for(asked.log) if asked.name == "all" else [asked.name]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="grete-scenarios-") as scratch:
        broker = find_broker() if asked.log == "kafka" and any(name in ON_ANY_LOG for name in names) else None
        log = asked.log if broker is None else f"kafka://{broker.bootstrap}"
        for number, name in enumerate(names):
            started = time.monotonic()
            try:
                said = run(name, log, asked.seed + number, Path(scratch) / name)
            except Failed as error:
                said = f"FAILED with --log {asked.log} --seed {asked.seed + number}: {error}"
                failed += 1
            print(f"{name:<28} {time.monotonic() - started:6.1f} s  {said}", flush=True)
        if broker is not None:
            broker.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
