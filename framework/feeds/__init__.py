"""Ways for data to get into the external topics of a job on the embedded log."""
