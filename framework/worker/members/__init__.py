"""The driver of a member: the machines of a job on Kafka."""
