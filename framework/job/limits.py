"""The bounds of what is done for a job as a whole, each with its reason."""

REDRIVE_RECORDS = 500  # of one transaction: as many as librdkafka gets in one go
REDRIVE_BYTES = 4 * 1024 * 1024  # of one transaction: a fraction of what librdkafka holds
