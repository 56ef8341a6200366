"""The log of a worker process: its lines, and the line that says why it ended."""
