"""What a task author declares: plain objects that know nothing of logs or processes. Import them from ``grete``."""
