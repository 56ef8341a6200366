"""A task: its methods, context, calls and timers."""
