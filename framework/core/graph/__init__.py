"""The graph of a job as numbers: stages, partitions, streams, and the place of a task."""
