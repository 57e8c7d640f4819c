"""What the jobs of the end-to-end tests do. Each says what it did in a file, so that a test sees it without rea."""

import os
import resource
import signal
import subprocess
import sys
import time

from rea.task import task


def note(path, text):
    """Appends a line in one write: a process that is killed leaves all of it or nothing."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


@task
def add(a, b):
    return a + b


@task
def append(path, text):
    note(path, text)


@task
def once_long(path, seconds=60):
    """Long in its first run, done at once in every later one."""
    first = not os.path.exists(path)
    note(path, os.getpid())
    if first:
        time.sleep(seconds)


@task
def long(path, seconds=60):
    note(path, os.getpid())
    time.sleep(seconds)
    note(path, "end")


@task
def stubborn(path):
    """Its first run can only be killed."""
    first = not os.path.exists(path)
    if first:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(path, os.getpid())
    while first:
        time.sleep(1)


@task
def family(path):
    """Starts a child, and a grandchild in a session of its own that ignores SIGTERM, and never ends."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = (
        "import os, subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True);"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    started = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
    grandchild = started.stdout.readline().strip()
    time.sleep(0.3)
    for pid in (os.getpid(), started.pid, grandchild):
        note(path, pid)
    time.sleep(600)


@task
def needs(path):
    """Works once the file is there."""
    with open(path):
        return "there"


@task
def noted(path, number, seconds=0):
    note(path, number)
    time.sleep(seconds)
    return number


@task
def orphan(seconds):
    """Leaves a process without a parent, which ends a moment later."""
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(seconds)
        os._exit(0)
    os.waitpid(child, 0)


@task
def die(code):
    os._exit(code)


@task
def open_files():
    return resource.getrlimit(resource.RLIMIT_NOFILE)


@task(concurrency=2, rate="1000/min", concurrency_key="file:{path}")
def alone(path, text):
    """Its jobs with one path run one at a time."""
    note(path, f"begin {text}")
    time.sleep(0.05)
    note(path, f"end {text}")
