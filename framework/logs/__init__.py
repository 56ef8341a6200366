"""Back ends of framework.ports.Log: embedded (SQLite), memory, Kafka."""
