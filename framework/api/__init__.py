"""The declarations of a task's author: plain objects that know no log and no process. Import them from ``grete``."""
