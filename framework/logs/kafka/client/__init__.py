"""Kafka's client: its configuration, its errors, and what a broker is asked."""
