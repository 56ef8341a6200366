"""The checkpoints of a job, and its state at one of them."""
