# The tasks of the worker process tests. Each does one bad thing, or nothing.
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from rea.exception import RetryableError
from rea.task import task

_memory = []


def note(path, *pids):
    with open(path, "a") as out:
        out.write("".join(f"{pid}\n" for pid in pids))


def daemon(path):
    """Double fork and setsid; notes its pid before the function goes on. When asked to end, it only talks."""
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"late\n"))
        note(path, os.getpid())
        os.write(writer, b"x")
        os.close(writer)
        while True:
            time.sleep(600)
        os._exit(0)
    os.waitpid(first, 0)
    os.read(reader, 1)


@task
def nothing():
    pass


@task
def echo(*args):
    return list(args)


@task
def whoami():
    return os.getpid()


@task
def fail():
    raise RetryableError("not now", after=2.5)


@task
def break_():
    raise ValueError("bad input")


@task
def wait_in_a_coroutine():
    """As `async def`, without loading asyncio into every child of these tests."""
    import asyncio

    async def wait():
        await asyncio.sleep(3600)

    return wait()


@task
def sleep(seconds, started=None):
    if started:
        note(started, os.getpid())
    time.sleep(seconds)


@task
def read_socket():
    a, _b = socket.socketpair()
    a.recv(1)


@task
def hold_the_gil():
    re.match("(a+)+$", "a" * 60 + "b")


@task
def ignore_term(path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note(path, os.getpid())
    while True:
        time.sleep(1)


@task
def clean_up_on_term(path):
    try:
        time.sleep(600)
    finally:
        note(path, os.getpid())


@task
def raise_after_term():
    try:
        time.sleep(600)
    except BaseException:
        raise RuntimeError("while stopping") from None


@task
def descendants(path):
    note(path, os.getpid())
    shell = subprocess.Popen(["sh", "-c", 'sleep 600 & echo $! >>"$0"; sleep 600', path])
    note(path, shell.pid)
    daemon(path)
    time.sleep(600)


@task
def fork_tree(path, depth):
    """Processes in sessions of their own that fork on and on, to some depth."""

    def grow(left):
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(path, os.getpid())
        for _ in range(2):
            if left and os.fork() == 0:
                grow(left - 1)
        time.sleep(600)

    if os.fork() == 0:
        grow(depth)
    time.sleep(600)


@task
def leave_daemon(path):
    print("early")
    daemon(path)
    return "done"


@task
def leave_daemon_when_told(started, path):
    note(started, os.getpid())
    while not os.path.exists(path + ".go"):
        time.sleep(0.005)
    daemon(path)


@task
def append_from_thread(path, stay):
    def go_on():
        while True:
            note(path, 1)
            time.sleep(0.02)

    threading.Thread(target=go_on, daemon=False).start()
    if stay:
        time.sleep(600)


@task
def exit_at_once(code):
    os._exit(code)


@task
def kill_self(number):
    os.kill(os.getpid(), number)
    time.sleep(600)


@task
def segfault():
    ctypes.string_at(0)


@task
def close_everything():
    os.closerange(3, 1024)
    time.sleep(600)


@task
def pollute():
    print("no newline", end="")
    os.write(1, b'\x00\x00\x00\x10{"t":"done"}\n')
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    print('{"t":"done","token":"0","ok":true,"result":"fake"}')
    print("to stderr", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo from a grandchild; echo and its stderr >&2"])
    os.close(1)
    return "right"


@task
def say(text):
    print(text)


@task
def write_much(megabytes, lines=True):
    block = (b"x" * 99 + b"\n") * 10_000 if lines else b"x" * 1_000_000
    for _ in range(megabytes):
        os.write(1, block)


@task
def use_memory(megabytes):
    _memory.append(b"x" * (megabytes << 20))


@task(memory="100MiB")
def limited_memory(megabytes):
    kept = b"x" * (megabytes << 20)
    time.sleep(0.5 if len(kept) < 100 << 20 else 60)
