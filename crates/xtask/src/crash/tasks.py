"""Tasks of a crash run. Each start, end and helper process is one line in `ran.log` beside this file, written outside the
store: what the checker believes instead of the store's word.

A line: what job attempt token pid start_of_that_process."""

import os
import random
import subprocess
import sys
import time

import rea
from rea.exception import RetryableError
from rea.task import task

HERE = os.path.dirname(os.path.abspath(__file__))
RAN = os.open(os.path.join(HERE, "ran.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
DAEMON = (
    "import os, time, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "print(os.getpid(), flush=True)\n"
    "os.close(1)\n"
    "time.sleep(120)\n"
)


def started(pid):
    """When a process began, in clock ticks since boot: with its number, its name for ever."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b") ")[2].split()[19])


def say(what, pid=None):
    pid = pid or os.getpid()
    job = rea.current_job()
    line = f"{what} {job.task_id} {job.attempt} {job.token} {pid} {started(pid)}\n"
    os.write(RAN, line.encode())


def life(body):
    """Says that the function began, and that it ended if it did. Its result is its token: the checker compares."""
    say("start")
    try:
        body()
    finally:
        say("end")
    return rea.current_job().token


@task(retry_base=0.05, retry_cap=0.4)
def quick(n):
    return life(lambda: None)


@task(retry_base=0.05, retry_cap=0.4, max_attempts=4)
def flaky(n):
    def body():
        if random.random() < 0.5:
            raise RetryableError("not this time")

    return life(body)


@task
def hopeless(n):
    def body():
        raise ValueError("never")

    return life(body)


@task(retry_base=0.05, retry_cap=0.4)
def slow(n):
    return life(lambda: time.sleep(0.05 + n % 7 * 0.05))


@task(on_crash="hold")
def careful(n):
    return life(lambda: time.sleep(0.05))


@task(retry_base=0.05, retry_cap=0.4, max_attempts=2)
def dying(n):
    say("start")
    os._exit(9)


@task(retry_base=0.05, retry_cap=0.4, max_attempts=2, timeout=0.3)
def stuck(n):
    say("start")
    time.sleep(120)


@task(retry_base=0.05, retry_cap=0.4)
def family(n):
    """Leaves a child and a daemon in a session of its own behind; neither may outlive the attempt."""

    def body():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
        say("helper", child.pid)
        daemon = subprocess.run([sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, check=True).stdout
        say("helper", int(daemon))
        time.sleep(0.05)

    return life(body)


@task
def relic(n):
    """Made old by the run, so that there is something to prune. Nobody counts on it, so it says nothing."""
    return rea.current_job().token


# Changed by every cycle, so that each start of the server has a catalogue to store.
@task(max_attempts=1 + CYCLE % 5, queue="side")  # noqa: F821
def aside(n):
    return life(lambda: None)
