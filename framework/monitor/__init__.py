"""A running job over HTTP: metrics for Prometheus, health, and its status as JSON."""
