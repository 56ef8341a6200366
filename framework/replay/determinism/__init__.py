"""``grete check-determinism``: a stretch of a deterministic job's history is run again, and its outputs compared."""
