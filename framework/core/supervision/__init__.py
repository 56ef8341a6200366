"""Supervision of the processes of one machine, without I/O: what happens to them goes in, what is to be done comes out.

``Supervision`` decides when a worker starts, ends, is killed, starts again, and is given up. Its driver is
grete.worker.supervisor.supervisor. Times are seconds of a monotonic clock, which the driver reads.
"""
