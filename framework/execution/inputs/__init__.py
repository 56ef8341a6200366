"""The inputs of a task: reading, early frames, watermarks, back-pressure."""
