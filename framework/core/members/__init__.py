"""The members of a job, and who of them runs which partition: decisions without I/O (docs/decisions/0080)."""
