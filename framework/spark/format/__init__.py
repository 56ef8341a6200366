"""The Spark data source: reading and writing topics, state and changelogs."""
