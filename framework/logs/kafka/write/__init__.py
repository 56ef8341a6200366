"""Writing of topics on Kafka, by transactions or without."""
