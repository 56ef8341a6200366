"""Speculative tasks against tasks that wait: in virtual time with measured costs, and as processes on a real log."""
