"""The driver of a task: it performs the actions of the core, in either mode."""
