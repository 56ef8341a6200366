"""Strong productions, as MillWheel has them: what a stage has made is in the log before the next stage takes it.

Each stage is a job, and a topic lies between them. Outputs of an aligned job are there for a reader of committed
records once the checkpoint with their inputs and state is, so the second job takes no record that a crash of the first
can take back. Each worker is a process for one task.
"""
