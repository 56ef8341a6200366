"""The protocol's decisions, sans-IO: ``TaskCore.step(event) -> actions``. No clock, disk, network, thread, logger or randomness."""
