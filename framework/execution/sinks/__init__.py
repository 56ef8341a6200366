"""The outbox of a task: outputs to sinks outside of the log."""
