# Two tasks to start from. `rea serve` loads this file when it starts; after a change: `rea reload`.
import rea
from rea.exception import RetryableError
from rea.task import task


# A task is a plain function. Arguments and result are JSON. What it prints is kept: `rea logs ID`.
@task
def greet(name):
    print(f"greeting {name}")
    return f"Hello, {name}!"


# RetryableError says that the reason may pass: rea tries again, here after 2, 4, ... seconds, three times in all.
# Any other exception ends the job at once, with the traceback kept: `rea job ID`.
@task(max_attempts=3, retry_base=2)
def unsteady():
    if rea.current_job().attempt == 1:
        raise RetryableError("the first attempt fails on purpose")
    return "the second attempt did it"
