"""The results of the mistakes, each as of its last run: ``results.txt``, a line each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.verification.outside.mutants import HERE, Mutant

RESULTS = HERE / "results.txt"
Outcome = Literal["killed", "survived", "unknown"]


@dataclass(frozen=True, slots=True)
class Result:
    """``seconds``: of the test, with its start. ``digest``: of the mistake as it was then."""

    name: str
    outcome: str
    seconds: float
    commit: str
    date: str
    digest: str

    def is_of(self, mutant: Mutant) -> bool:
        """Whether it is a result of this mistake as it is written now."""
        return self.digest == mutant.digest


def read(path: Path = RESULTS) -> dict[str, Result]:
    """Return the results by name."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line.split() for line in lines if line and not line.startswith("#")]
    return {each[0]: Result(each[0], each[1], float(each[2]), *each[3:]) for each in found}


def write(results: dict[str, Result], path: Path = RESULTS) -> None:
    """Write the results, by name."""
    width = max(map(len, results), default=0)
    lines = ["# mistake, what became of it, seconds of its test, commit, date, digest of the entry"]
    lines += [
        f"{name:{width}} {each.outcome:9} {each.seconds:5.1f} {each.commit} {each.date} {each.digest}"
        for name, each in sorted(results.items())
    ]
    path.with_suffix(".new").write_text("\n".join(lines) + "\n")
    path.with_suffix(".new").replace(path)
