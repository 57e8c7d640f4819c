# `async def` tasks in a real child: results, failures, what is left running, how they are stopped.
import asyncio
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

import support


class WithAsyncChild(unittest.TestCase):
    def setUp(self):
        self.child = support.Child([{"file": str(support.HERE / "async_tasks.py")}])
        self.addCleanup(self.child.__exit__)
        self.child.hello()

    def run_task(self, name, *args):
        return self.child.run(f"async_tasks:{name}", *args)


class Running(WithAsyncChild):
    def test_the_result_is_that_of_the_coroutine(self):
        self.assertEqual(self.run_task("add", 1, 2)["result"], [3, "trace-1"])
        self.assertEqual(self.run_task("hidden")["result"], "awaited")
        done = self.run_task("return_a_coroutine")
        self.assertEqual((done["cause"], done["type"]), ("fatal", "NotJson"))
        self.assertIn("await it", done["message"])

    def test_each_job_has_a_loop_and_a_context_of_its_own(self):
        for _ in range(3):
            self.assertEqual(self.run_task("look")["result"], ["unset", False, 1])

    def test_current_job_is_known_in_the_coroutine_and_in_its_threads(self):
        done = self.run_task("about_job")
        self.assertEqual(done["result"], [2, 2])
        self.assertNotIn("dirty", done)

    def test_failures(self):
        for kind, cause, name, after_ms in [
            ("retry", "error", "rea.exception.RetryableError", 2000),
            ("timeout", "error", None, None),
            ("plain", "fatal", "ValueError", None),
            ("exit", "fatal", "SystemExit", None),
            ("cancel", "fatal", "asyncio.exceptions.CancelledError", None),
            ("stop", "fatal", "RuntimeError", None),
        ]:
            with self.subTest(kind):
                done = self.run_task("fail", kind)
                self.assertEqual((done["cause"], done["type"]), (cause, name or done["type"]), done)
                self.assertEqual(done.get("after_ms"), after_ms)
        self.assertEqual(self.run_task("add", 1, 2)["result"][0], 3)
        self.assertEqual(self.child.errors(), "")

    def test_the_traceback_shows_the_users_frames_only(self):
        text = self.run_task("fail", "plain")["traceback"]
        self.assertIn("async_tasks.py", text)
        for machinery in ("base_events.py", "_async.py", "worker.py"):
            self.assertNotIn(machinery, text)

    def test_what_a_failed_job_held_is_freed_at_once(self):
        """Not when the collector next runs: that may be many big jobs later."""
        for name in ("hold_and_fail", "hold_and_return"):
            self.run_task(name)
            self.assertEqual(self.run_task("held")["result"], 0, name)

    def test_programs_can_be_run(self):
        done = self.run_task("run_program")
        self.assertEqual((done["result"], done["spawned"]), ("out\n", True))

    def test_a_fork_does_not_hurt_the_job(self):
        self.assertEqual(self.run_task("fork_and_return")["result"], ["5", "6"])
        self.assertEqual(self.run_task("add", 1, 2)["result"][0], 3)


class Leftovers(WithAsyncChild):
    def test_tasks_left_running_are_cancelled_awaited_and_told(self):
        done = self.run_task("leave_tasks")
        self.assertEqual(done["result"], "left")
        self.assertNotIn("dirty", done)
        self.assertEqual(self.child.output(), "poller ended\n")
        told = self.child.errors()
        self.assertIn("1 asyncio task was still running when the job ended; cancelled: poll_for_ever", told)
        # It does not run on in the next job.
        self.assertEqual(self.run_task("look")["result"], ["unset", False, 1])
        self.assertEqual((self.child.output(), self.child.errors()), ("", ""))

    def test_the_failure_of_such_a_task_is_told(self):
        self.assertTrue(self.run_task("leave_failing_task")["ok"])
        self.assertIn("while clearing up", self.child.errors())

    def test_one_that_does_not_end_is_given_up(self):
        self.assertEqual(self.run_task("leave_stubborn_task")["result"], "left")
        self.assertIn(
            "1 asyncio task was given up, 0.1 s after being cancelled: stubborn", self.child.errors()
        )
        self.assertEqual(self.run_task("look")["result"], ["unset", False, 1])

    def test_async_generators_are_closed(self):
        self.assertEqual(self.run_task("leave_generator")["result"], 1)
        self.assertEqual(self.child.output(), "numbers closed\n")

    def test_timers_do_not_fire_in_the_next_job(self):
        self.run_task("leave_timer")
        time.sleep(0.02)
        self.run_task("add", 1, 2)
        self.assertEqual(self.child.output(), "")

    def test_a_thread_left_behind_is_dirty(self):
        self.assertTrue(self.run_task("leave_thread", 60)["dirty"])


OTHER_LOOP = """
import asyncio
from rea.task import task

class Loop(asyncio.SelectorEventLoop):
    pass

class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self):
        return Loop()

asyncio.set_event_loop_policy(Policy())

@task
async def kind():
    return type(asyncio.get_running_loop()).__module__

@task
def plain():
    pass
"""


class OtherLoops(unittest.TestCase):
    def test_the_policy_of_the_code_is_used_and_processes_of_its_loop_are_looked_for(self):
        """uvloop starts programs without an audit event."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "other_loop.py"
            path.write_text(OTHER_LOOP)
            with support.Child([{"file": str(path)}]) as child:
                child.hello()
                done = child.run("other_loop:kind")
                self.assertEqual((done["result"], done["spawned"]), ("other_loop", True))
                self.assertNotIn("spawned", child.run("other_loop:plain"))


class Stopping(WithAsyncChild):
    def stop(self, name, *args, expect, exactly=None):
        self.child.start(f"async_tasks:{name}", *args)
        self.child.wait_for_output("started")
        time.sleep(0.02)  # into the wait
        asked = time.monotonic()
        self.child.process.send_signal(signal.SIGTERM)
        self.assertIsNone(self.child.read(), "a stopped job reports nothing")
        self.assertEqual(self.child.process.wait(support.TIMEOUT_S), 0)
        self.assertLess(time.monotonic() - asked, 3)
        output = self.child.output()
        if exactly is not None:
            self.assertEqual(output.split("\n")[:-1], exactly)
        for text in expect:
            self.assertIn(text, output)

    def test_a_waiting_coroutine_gets_stopped_and_may_await_in_its_cleanup(self):
        self.stop("wait_with_cleanup", expect=["got Stopped", "cleaned up", "poller ended"])

    def test_gathered_coroutines_end_too(self):
        self.stop("wait_in_gather", expect=["got Stopped", "poller ended"])

    @unittest.skipUnless(hasattr(asyncio, "TaskGroup"), "Python 3.11 has task groups")
    def test_a_task_group_ends_its_tasks_before_it_is_left(self):
        self.stop("wait_in_a_group", False, expect=[], exactly=["poller ended", "got Stopped"])

    @unittest.skipUnless(hasattr(asyncio, "TaskGroup"), "Python 3.11 has task groups")
    def test_a_stop_in_the_body_of_a_task_group(self):
        # Only from 3.13 on do they know a CancelledError by isinstance.
        name = "Stopped" if sys.version_info >= (3, 13) else "BaseExceptionGroup"
        self.stop("wait_in_a_group", True, expect=[], exactly=["poller ended", f"got {name}"])

    def test_a_condition_takes_its_lock_again(self):
        self.stop("wait_for_a_condition", expect=[], exactly=["got Stopped"])

    def test_a_wait_for_a_thread(self):
        self.stop("wait_in_thread", 60, expect=["cleaned up"])

    def test_blocking_code_in_the_coroutine(self):
        self.stop("block", expect=["got Stopped", "cleaned up"])

    def test_blocking_code_in_another_task(self):
        self.stop("block_in_a_subtask", expect=["cleaned up"])

    def test_a_stop_that_is_swallowed_reports_nothing(self):
        self.stop("swallow_stop", expect=["swallowed Stopped"])


if __name__ == "__main__":
    unittest.main()
