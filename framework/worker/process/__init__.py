"""The inside of a worker process: the loop, the tasks that it hosts, and their reports."""
