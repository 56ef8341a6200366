"""The engine of recorded input, and the tools that run on it: determinism, incidents, audits of a running job."""
