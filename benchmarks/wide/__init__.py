"""The cost of a partition: jobs of many partitions with little traffic in each, on Kafka, beside Kafka Streams."""
