"""The same job on other stream processors, measured by the same two ends in the same run."""
