"""The job of bursting_job in deterministic mode, which fires all that is due in one call."""

from grete import Job
from tests.event_time.bursting_job import Report

job = Job("bursting", stages=[Report], mode="deterministic")
