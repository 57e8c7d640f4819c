# Tasks for the tests of flows, run by a real server and in process.
import os
import tempfile
import time

import rea
from rea.exception import RetryableError
from rea.task import task


@task
def give(value=None):
    return value


@task
def numbers(count):
    return list(range(count))


@task
def double(number, times=2):
    return number * times


@task
def total(*values):
    return sum(one for value in values for one in (value if isinstance(value, list) else [value or 0]))


@task
def gather(values):
    return values


@task
def fail(text="no", number=None):
    raise ValueError(text)


@task
def odd_only(number):
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


@task
def fail_first(folder, times, value="done"):
    """Fails so many times in all, for each folder."""
    if len(os.listdir(folder)) < times:
        tempfile.mkstemp(dir=folder)
        raise ValueError("not yet")
    return value


@task(max_attempts=3, retry_base=0, retry_cap=0)
def third_time(value):
    if rea.current_job().attempt < 3:
        raise RetryableError("again")
    return [value, rea.current_job().attempt]


@task
def sleep(seconds, value=None):
    time.sleep(seconds)
    return value


@task
def wait_for_file(path, fails=False):
    """Ends, well or not, when there is a file."""
    while not os.path.exists(path):
        time.sleep(0.01)
    if fails:
        raise ValueError("as told")
    return path


@task
def about():
    job = rea.current_job()
    return [job.task_id, job.root_id]


@task
def open_a_flow(count):
    with rea.flow("of a job") as flow:
        total(double.map(numbers(count)))
    return [flow.id, rea.current_job().root_id]


@task
async def open_a_flow_async(count):
    async with rea.aio.flow("of an async job") as flow:
        total(double.map(numbers(count)))
    return [flow.id, rea.current_job().root_id]
