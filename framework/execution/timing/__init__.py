"""Event time and timers of a task."""
