# Tasks that behave badly in all the ways that jobs do; the tests run them in real child processes.
from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import threading
import time

import rea
from rea.exception import Fatal, RetryableError
from rea.task import task

setting = contextvars.ContextVar("setting", default="unset")


@task(max_attempts=5, default_priority=3)
def echo(*args, **kwargs):
    """Gives back what it gets.

    More text that the catalogue does not need.
    """
    return {"args": list(args), "kwargs": kwargs}


@task
def traced(number, trace_id=None):
    return trace_id


@task
def traced_by_keyword(*, trace_id):
    return trace_id


@task
def about_job():
    job = rea.current_job()
    return {name: getattr(job, name) for name in rea.current_job().__slots__ if not name.startswith("_")}


@task
def progress_often(count):
    for done in range(count + 1):
        rea.current_job().progress(done, count, note=f"{done} \ud800")


# --- results ---


@task
def make(expression):
    """Returns the value of a Python expression of the test's own."""
    return eval(expression)


@task
def text_of(length):
    return "x" * length


# --- failures ---


class Flaky(RetryableError):
    def __init__(self):  # does not call RetryableError's own
        pass


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text for you")


@task
def fail(expression):
    raise eval(expression)


@task(retry_on=Exception)
def fail_but_retry(expression):
    raise eval(expression)


@task
def fail_in_a_circle():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


@task
def fail_in_a_chain(length):
    error = None
    for number in range(length):
        try:
            raise ValueError(f"{number} " + "x" * 20_000) from error
        except ValueError as latest:
            error = latest
    raise error


@task
def fail_deep(depth):
    return fail_deep(depth - 1) if depth else {}["x"]


@task
def leave(code):
    sys.exit(code)


@task
def leave_at_once(code):
    os._exit(code)


# --- output ---


@task
def say(text, end="\n"):
    print(text, end=end)


@task
def say_by_all_roads():
    print("printed,", end="")
    sys.stdout.flush()
    os.write(1, b"written,")
    subprocess.run(["printf", "from a grandchild,"])
    print("no newline", end="")


@task
def say_in_c():
    import ctypes

    ctypes.CDLL(None).printf(b"from C")


@task
def close_output():
    os.close(1)
    os.close(2)
    print("after close")


@task
def steal_output(path):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 1)


@task
def close_low():
    os.closerange(0, 100)


@task
def replace_stdout():
    import io

    sys.stdout = io.StringIO()
    print("lost on purpose")


@task
def shut_stdout():
    sys.stdout.close()


# --- stopping ---


@task
def sleep_with_cleanup(seconds):
    try:
        print("started")
        time.sleep(seconds)
    finally:
        print("cleaned up", end="")


@task
def swallow_stop(seconds):
    try:
        print("started")
        time.sleep(seconds)
    except BaseException as error:
        print("swallowed", type(error).__name__)
        return "as if nothing were"


# --- leftovers ---


@task
def leave_thread(seconds):
    threading.Thread(target=time.sleep, args=(seconds,), daemon=True).start()


@task
def use_thread():
    thread = threading.Thread(target=time.sleep, args=(0.01,))
    thread.start()
    thread.join()


@task
def use_process():
    return subprocess.run(["true"]).returncode


@task
def leave_process():
    return subprocess.Popen(["sleep", "60"]).pid


@task
def fork_quietly():
    """Forks, and lets the copy come back out of the function."""
    pid = os.fork()
    return os.waitpid(pid, 0)[1] if pid else "copy"


@task
def leave_fork():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    return pid


@task
def fork_and_fail():
    if os.fork() == 0:
        raise ValueError("the copy fails")
    os.wait()


@task
def spawn_pool():
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(abs, [-1, -2])


@task
def fork_in_c():
    import ctypes

    pid = ctypes.CDLL(None).fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@task
def lower_limit():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


# --- what must not reach the next job ---


@task
def change_everything(folder):
    import locale

    os.chdir(folder)
    os.environ["LEAKED"] = "yes"
    os.environ["TZ"] = "Asia/Shanghai"
    os.environ.pop("KEPT", None)
    time.tzset()
    os.umask(0o777)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    locale.setlocale(locale.LC_NUMERIC, "C")
    setting.set("leaked")


@task
def look():
    import locale

    umask = os.umask(0o22)
    os.umask(umask)
    return {
        "cwd": os.getcwd(),
        "LEAKED": os.environ.get("LEAKED"),
        "KEPT": os.environ.get("KEPT"),
        "TZ": os.environ.get("TZ"),
        "zone": time.strftime("%z"),
        "umask": umask,
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_IGN,
        "int": signal.getsignal(signal.SIGINT) is signal.SIG_DFL,
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "locale": locale.setlocale(locale.LC_ALL),
        "setting": setting.get(),
        "fd_in_env": "REA_FD" in os.environ,
    }


@task
def raise_signal_int():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    return "still here"


@task
def sigint_of_a_program():
    """Whether a program that a job starts would have SIGINT ignored."""
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) & 1 << (signal.SIGINT - 1))


@task(name="custom-name", timeout=None, on_crash="hold", queue="slow", retry_base=0.5, retry_cap=9)
def named():
    raise Fatal("never")


@task
def enqueue_another():
    handle = rea.enqueue("child_tasks:echo", 1)
    return [handle.task_id, handle.created]
