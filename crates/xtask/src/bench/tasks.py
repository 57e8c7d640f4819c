"""Tasks of the benchmark's Python workloads."""

import time

from rea.task import task


@task
def noop(n):
    return None


@task
def latency(asked_ns):
    """Nanoseconds from the start of the enqueue call, by the wall clock of the one machine, to here."""
    return time.time_ns() - asked_ns
