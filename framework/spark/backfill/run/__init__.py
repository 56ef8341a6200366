"""The run of a job's stages by Spark, piece by piece."""
