"""The tally of a campaign of kills, and its report."""

from collections import Counter
from dataclasses import dataclass, field

from tests.verification.chaos.worker import PHASES, POINTS


@dataclass
class Tally:
    """The counts of a campaign: its kills and their consequences."""

    kills: int = 0
    rollbacks: int = 0
    rolled_back: int = 0
    starts: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def report(self, seconds: float) -> list[str]:
        """Return the events of the run, line by line."""
        kills = max(self.kills, 1)
        return [
            f"{self.kills:,} kills in {seconds:,.1f} s ({seconds / kills:.2f} s each), {self.starts:,} worker starts",
            (
                f"{self.rollbacks:,} of them rolled back {self.rolled_back:,} uncommitted records, "
                f"{self.kills - self.rollbacks:,} rolled back none"
            ),
            "phase hit: " + ", ".join(f"{phase} {100 * self.phases[phase] / kills:.1f} %" for phase in PHASES),
            f"at named points: {self.points.total():,}",
            *(f"  {self.points[point]:>6,}  {point}" for point in POINTS),
            "besides: " + (", ".join(f"{count:,} {name}" for name, count in sorted(self.others.items())) or "nothing"),
        ]
