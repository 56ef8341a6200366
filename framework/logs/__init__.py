"""Back ends of grete.ports.Log: embedded (SQLite), memory, Kafka."""
