"""Reading of topics on Kafka."""
