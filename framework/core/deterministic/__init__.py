"""The core of a deterministic task: one order of records, outputs before the commit."""
