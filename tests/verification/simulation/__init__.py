"""The simulator: the real core, driver and overlay under a seeded scheduler (docs/SIMULATION.md)."""

from tests.verification.simulation.run import Result, run_seed

__all__ = ["Result", "run_seed"]
