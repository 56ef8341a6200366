"""The job of gated_burst in deterministic mode."""

from grete import Job
from tests.event_time.gated_burst import Report

job = Job("gated", stages=[Report], mode="deterministic")
