"""The protocol's decisions, sans-IO: ``TaskCore.step(event) -> actions``. No I/O, clock, thread, logger, randomness."""
