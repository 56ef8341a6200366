"""Reading the committed state of a job."""
