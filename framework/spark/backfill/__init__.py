"""A job's code over its history, on Spark."""
