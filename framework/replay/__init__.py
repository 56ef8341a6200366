"""Running recorded input through a task again, to find an error."""
