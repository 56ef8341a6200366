"""What a running job shows over HTTP: metrics for Prometheus, health, and its status as JSON."""
