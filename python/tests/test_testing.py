# rea.testing: a task run as a made-up attempt, and what it is told about its end.
import asyncio
import contextvars
import unittest

import rea
import rea.job
from rea import testing
from rea.exception import Fatal, RetryableError
from rea.task import task

setting = contextvars.ContextVar("setting", default="unset")


@task(max_attempts=5, queue="mail")
def about(*args, trace_id=None, **kwargs):
    job = rea.current_job()
    setting.set("leaked")
    return {
        "args": args,
        "kwargs": kwargs,
        "trace_id": trace_id,
        "job": {name: getattr(job, name) for name in rea.job.Job.__slots__ if not name.startswith("_")},
        "same": [job.attempt, job.failures, job.max_attempts, job.key, job.token, job.queue, job.task],
    }


@task(retry_on=KeyError)
def fail(kind):
    if kind == "later":
        raise RetryableError("gateway busy", after=7.5)
    if kind == "exit":
        raise SystemExit(1)
    raise {"retry": RetryableError, "key": KeyError, "fatal": Fatal, "value": ValueError}[kind](kind)


@task
def steps(count):
    for done in range(count + 1):
        rea.current_job().progress(done, count, note=f"step {done}")


@task
def wrong_progress():
    rea.current_job().progress("half")


@task
def give(expression):
    return eval(expression)


@task
async def add_later(a, b):
    rea.current_job().progress(1)
    await asyncio.sleep(0)
    return a + b


@task
def run_another():
    inner = testing.FakeJob(attempt=9).run(about)
    return [inner.result["same"][0], rea.current_job().attempt]


class Run(unittest.TestCase):
    def test_a_good_end(self):
        outcome = testing.run(give, "(1, 2)")
        self.assertEqual((outcome.state, outcome.cause, outcome.result), ("success", "ok", [1, 2]))
        self.assertEqual((outcome.error, outcome.after, outcome.progress), (None, None, []))

    def test_the_job_is_as_it_was_made(self):
        outcome = testing.FakeJob(attempt=3, key="order-7", token="t9").run(about, (1,), x=2)
        found = outcome.result
        self.assertEqual((found["args"], found["kwargs"]), ([[1]], {"x": 2}))
        self.assertEqual(found["same"], [3, 2, 5, "order-7", "t9", "mail", about.name])
        plain = testing.run(about).result
        self.assertEqual(plain["same"][:3], [1, 0, 5])
        self.assertEqual(plain["trace_id"], plain["job"]["trace_id"])
        self.assertEqual(plain["job"]["key"], plain["trace_id"])
        self.assertEqual(testing.run(about, trace_id="own").result["trace_id"], "own")
        self.assertEqual(
            testing.FakeJob(failures=0, attempt=4, max_attempts=9).run(about).result["same"][1:3], [0, 9]
        )

    def test_the_retry_decision(self):
        for kind, attempt, state, cause, after in [
            ("retry", 1, "failed", "error", None),
            ("later", 2, "failed", "error", 7.5),
            ("later", 3, "dead", "error", 7.5),
            ("key", 1, "failed", "error", None),
            ("fatal", 1, "dead", "fatal", None),
            ("value", 1, "dead", "fatal", None),
            ("exit", 1, "dead", "fatal", None),
        ]:
            with self.subTest(kind=kind, attempt=attempt):
                outcome = testing.FakeJob(attempt=attempt).run(fail, kind)
                self.assertEqual((outcome.state, outcome.cause, outcome.after), (state, cause, after))
                self.assertIsNone(outcome.result)
        outcome = testing.run(fail, "later")
        self.assertIsInstance(outcome.error, RetryableError)
        self.assertEqual(outcome.message, "gateway busy")
        self.assertIn("test_testing.py", outcome.traceback)
        self.assertNotIn('testing.py", line', outcome.traceback.replace("test_testing.py", ""))

    def test_progress_is_recorded_whole(self):
        outcome = testing.run(steps, 50)
        self.assertEqual(len(outcome.progress), 51)
        self.assertEqual(outcome.progress[-1], testing.Progress(50, 50, "step 50"))
        self.assertIsInstance(testing.run(wrong_progress).error, ValueError)

    def test_what_would_not_travel_is_told(self):
        for expression in ("object()", "float('nan')", "'x' * 2**20"):
            outcome = testing.run(give, expression)
            self.assertEqual((outcome.state, outcome.cause), ("dead", "fatal"), expression)
        with self.assertRaisesRegex(TypeError, "argument 1"):
            testing.run(give, object())
        with self.assertRaisesRegex(TypeError, "missing"):
            testing.run(give)
        with self.assertRaisesRegex(TypeError, "@task"):
            testing.run(len, [])
        with self.assertRaisesRegex(ValueError, "attempt"):
            testing.FakeJob(attempt=0)

    def test_nothing_is_left_behind(self):
        testing.run(about)
        self.assertEqual(setting.get(), "unset")
        with self.assertRaisesRegex(RuntimeError, "rea.testing.run"):
            rea.current_job()
        self.assertEqual(testing.FakeJob(attempt=2).run(run_another).result, [9, 2])

    def test_async_tasks(self):
        outcome = testing.run(add_later, 1, 2)
        self.assertEqual((outcome.result, outcome.progress), (3, [testing.Progress(1)]))

        async def in_a_loop():
            with self.assertRaisesRegex(BaseException, "asyncio.to_thread"):
                testing.run(add_later, 1, 2)
            return await asyncio.to_thread(testing.run, add_later, 1, 2)

        self.assertEqual(asyncio.run(in_a_loop()).result, 3)


if __name__ == "__main__":
    unittest.main()
