"""The same jobs on other stream processors, measured by the same two ends in the same run."""
