"""The pipes between a supervisor and its worker processes."""
