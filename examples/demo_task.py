# The tasks of the tutorial. Start them with `rea serve examples/demo_task.py`.
from rea.task import task
from rea.exception import RetryableError
import random
import time

import rea


# A notice that fails now and then. RetryableError says "the reason may pass": rea tries again, up to five
# times in all, with a growing delay. trace_id is handed in because the function takes it: it stays the same
# over all attempts.
@task(max_attempts=5, default_priority=3)
def send_notice(user_id, trace_id=None):
    print(f"send to {user_id} started, trace={trace_id}")
    if random.random() < 0.3:
        raise RetryableError("simulate timeout")
    print(f"send to {user_id} done")


# The smallest task. What it returns is the job's result and must be JSON.
@task
def add(a, b):
    return a + b


# A long one, to try progress, cancel and timeout with. rea stops it from outside, wherever it is; `finally`
# still runs.
@task(timeout=120)
def slow(seconds=10):
    job = rea.current_job()
    try:
        for second in range(seconds):
            job.progress(second, seconds, note=f"second {second}")
            time.sleep(1)
        job.progress(seconds, seconds)
    finally:
        print("slow: cleaned up")
    return seconds


# Any other exception means that trying again is of no use: the job is dead at once, with the traceback kept.
@task
def broken():
    raise ValueError("this can never work")
