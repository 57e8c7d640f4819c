# Jobs in a real child: hello, results, failures, how a child ends.
import os
import signal
import struct
import sys
import tempfile
import time
import unittest
from pathlib import Path

import support


# Of a job whose frame a test makes itself.
TOKEN = "00000000000000ff"


class WithChild(unittest.TestCase):
    def setUp(self):
        self.child = support.Child()
        self.addCleanup(self.child.__exit__)
        self.greeting = self.child.hello()

    def failed(self, done, cause, kind):
        self.assertEqual((done["ok"], done["cause"], done["type"]), (False, cause, kind), done)
        return done["message"]


class Running(WithChild):
    def test_hello_tells_the_tasks(self):
        hello = self.greeting
        self.assertEqual((hello["v"], hello["pid"]), (1, self.child.process.pid))
        self.assertEqual(hello["lang"], "python {}.{}.{}".format(*sys.version_info[:3]))
        tasks = {task.pop("name"): task for task in hello["tasks"]}
        self.assertEqual(
            tasks["child_tasks:echo"],
            {"priority": 3, "max_attempts": 5, "doc": "Gives back what it gets."},
        )
        self.assertEqual(
            tasks["custom-name"],
            {
                "queue": "slow",
                "retry_base_ms": 500,
                "retry_cap_ms": 9000,
                "on_crash": "hold",
                "timeout_ms": None,
            },
        )

    def test_arguments_and_results_come_through(self):
        values = [None, 1.5, 12345678901234567890, "中文 🎉 \0", {"a": []}]
        done = self.child.run("echo", *values, lang="中文")
        self.assertEqual(done["result"], {"args": values, "kwargs": {"lang": "中文"}})
        self.assertNotIn("dirty", done)
        self.assertNotIn("spawned", done)

    def test_frames_may_come_in_pieces_and_be_big(self):
        self.child.permit(TOKEN)
        frame = support.run_frame(TOKEN, "child_tasks:echo", ["x" * 3_000_000], result_max=1 << 23)
        data = support.json.dumps(frame).encode()
        data = struct.pack(">I", len(data)) + data
        for piece in (data[:2], data[2:7], data[7:1000], data[1000:]):
            self.child.socket.sendall(piece)
            time.sleep(0.01)
        self.assertEqual(len(self.child.read()["result"]["args"][0]), 3_000_000)
        self.assertTrue(self.child.run("echo")["ok"])

    def test_trace_id_is_given_only_to_those_who_take_it_and_lack_it(self):
        run = self.child.run
        self.assertEqual(run("traced", 1)["result"], "trace-1")
        self.assertEqual(run("traced", 1, trace_id="own")["result"], "own")
        self.assertEqual(run("traced", 1, "own")["result"], "own")
        self.assertEqual(run("traced_by_keyword")["result"], "trace-1")
        self.assertEqual(run("echo", 1)["result"]["kwargs"], {})

    def test_current_job(self):
        about = self.child.run("about_job")["result"]
        self.assertEqual(about.pop("token"), "0000000000000001")
        frame = support.run_frame("", "child_tasks:about_job")
        self.assertEqual(about, {name: frame[name] for name in about})
        self.assertEqual(len(about), 9)

    def test_progress_is_limited_but_the_last_one_comes(self):
        self.child.run("progress_often", 1000)
        frames = self.child.progress
        self.assertLess(len(frames), 20)
        self.assertEqual((frames[0]["done"], frames[0]["total"], frames[0]["note"]), (0, 1000, "0 \ufffd"))
        self.assertEqual(frames[-1]["done"], 1000)

    def test_a_task_of_another_name_does_not_run(self):
        """F71: only registered functions run, whatever the wire says."""
        for name in ("os:system", "child_tasks:os", "builtins:eval", "nope"):
            self.child.send(support.run_frame(TOKEN, name, ["1"]))
            self.child.permit(TOKEN)
            self.failed(self.child.read(), "error", "UnknownTask")


class Ahead(WithChild):
    """Jobs that are sent while another runs: each begins when its permit is read, in turn, or never."""

    def test_a_job_begins_with_its_permit_and_one_without_is_passed_over(self):
        first, taken_back, third = (self.child.ready("echo", number) for number in (1, 2, 3))
        time.sleep(0.05)
        self.child.permit(first)
        self.assertEqual(self.child.read()["token"], first)
        self.child.permit(third)
        done = self.child.read()
        self.assertEqual((done["token"], done["result"]["args"]), (third, [3]))
        self.assertNotEqual(taken_back, third)

    def test_several_permitted_jobs_run_one_after_the_other(self):
        tokens = [self.child.start("echo", number) for number in range(20)]
        self.assertEqual([self.child.read()["token"] for _ in tokens], tokens)

    def test_each_job_writes_to_the_next_pipe(self):
        with support.Child(outputs=3) as child:
            self.assertTrue(child.hello()["ahead"])
            tokens = [child.start("say_by_all_roads" if n == 1 else "say", *([] if n == 1 else [f"of {n}"])) for n in (0, 1)]
            self.assertEqual([child.read()["token"] for _ in tokens], tokens)
            child.go()
            more = [child.start("say", "of 2"), child.ready("nope"), child.start("nope"), child.start("say", "of 4")]
            self.assertEqual([child.read()["token"] for _ in range(3)], [more[0], more[2], more[3]])
            said = [child.output_of_turn(turn) for turn in range(3)]
            self.assertEqual((said[0], said[2]), ("of 0\n", "of 2\n"))
            self.assertTrue(said[1].startswith("printed,written,") and said[1].endswith("of 4\n"), said[1])
        with support.Child() as child:
            self.assertFalse(child.hello()["ahead"])

    def test_a_job_does_not_begin_beside_what_the_one_before_has_left(self):
        first = self.child.start("leave_thread", 60)
        self.child.start("echo")
        done = self.child.read()
        self.assertEqual((done["token"], done["dirty"]), (first, True))
        self.child.socket.settimeout(0.1)
        self.assertRaises(support.socket.timeout, self.child.read)


class Results(WithChild):
    def test_what_is_not_json_is_fatal(self):
        """C115, F38, F39."""
        for expression, part in [
            ("float('nan')", "result is not JSON"),
            ("[float('inf')]", "result is not JSON"),
            ("'a' + chr(0xd800)", "result is not valid Unicode"),
            ("{1, 2}", "list(value)"),
            ("object()", "object"),
            ("__import__('functools').reduce(lambda a, _: [a], range(100000), [])", "64 levels"),
        ]:
            with self.subTest(expression):
                self.assertIn(part, self.failed(self.child.run("make", expression), "fatal", "NotJson"))
        self.assertEqual(self.child.run("make", r"'a\0b'")["result"], "a\0b")

    def test_the_limit_counts_bytes_of_json(self):
        """F37: at the limit it is taken, one byte over it is not."""
        self.assertTrue(self.child.run("text_of", 98, result_max=100)["ok"])
        message = self.failed(self.child.run("text_of", 99, result_max=100), "fatal", "ResultTooLarge")
        self.assertIn("101 bytes", message)
        self.assertFalse(self.child.run("make", "'中' * 33", result_max=100)["ok"])
        # Never a frame over the protocol's own limit, whatever result_max says.
        nearly = (8 << 20) - 20
        self.failed(self.child.run("text_of", nearly, result_max=1 << 30), "fatal", "ResultTooLarge")

    def test_a_number_too_big_for_python_spoils_one_job_only(self):
        body = support.json.dumps(support.run_frame(TOKEN, "child_tasks:echo", ["BIG"]))
        self.child.permit(TOKEN)
        self.child.send_bytes(body.replace('"BIG"', "9" * 5000).encode())
        done = self.child.read()
        if done["ok"]:  # a Python without the limit
            self.skipTest("this Python reads numbers of any length")
        self.failed(done, "fatal", "ValueError")
        self.assertTrue(self.child.run("echo")["ok"])


class Failures(WithChild):
    def test_the_failure_rule(self):
        for expression, cause, kind in [
            ("RetryableError('x')", "error", "rea.exception.RetryableError"),
            ("Flaky()", "error", "child_tasks.Flaky"),
            ("ConnectionResetError('x')", "error", "ConnectionResetError"),
            ("TimeoutError('x')", "error", "TimeoutError"),
            ("__import__('socket').timeout('x')", "error", None),
            ("__import__('asyncio').TimeoutError('x')", "error", None),
            ("ValueError('x')", "fatal", "ValueError"),
            ("Fatal('x')", "fatal", "rea.exception.Fatal"),
            ("SystemExit(0)", "fatal", "SystemExit"),
            ("KeyboardInterrupt()", "fatal", "KeyboardInterrupt"),
            ("GeneratorExit()", "fatal", "GeneratorExit"),
        ]:
            with self.subTest(expression):
                done = self.child.run("fail", expression)
                self.failed(done, cause, kind or done["type"])

    def test_retry_on_widens_but_fatal_stays_fatal(self):
        self.failed(self.child.run("fail_but_retry", "ValueError('x')"), "error", "ValueError")
        self.failed(self.child.run("fail_but_retry", "Fatal('x')"), "fatal", "rea.exception.Fatal")
        self.failed(self.child.run("fail_but_retry", "SystemExit(1)"), "fatal", "SystemExit")

    def test_after_is_sent_in_milliseconds(self):
        self.assertEqual(self.child.run("fail", "RetryableError('x', after=2.5)")["after_ms"], 2500)
        self.assertNotIn("after_ms", self.child.run("fail", "RetryableError('x')"))
        # A wrong value is the task's bug.
        self.failed(self.child.run("fail", "RetryableError('x', after=-1)"), "fatal", "ValueError")

    def test_the_traceback_shows_the_users_frames_only(self):
        done = self.child.run("fail", "ValueError('here')")
        self.assertIn("child_tasks.py", done["traceback"])
        self.assertIn("raise eval(expression)", done["traceback"])
        self.assertNotIn("worker.py", done["traceback"])
        self.assertTrue(done["traceback"].endswith("ValueError: here\n"))

    def test_hostile_exceptions_still_close_the_attempt(self):
        """F28, C115."""
        for expression, part in [
            ("ValueError('x' * 50_000_000)", "50,000,000 characters"),
            ("Unprintable()", "its __str__ raised ValueError"),
            ("ValueError('a' + chr(0xd800) + chr(0))", "a\ufffd\0"),
            ("type('X' * 5000, (Exception,), {})('long name')", "long name"),
        ]:
            with self.subTest(expression):
                done = self.child.run("fail", expression)
                self.assertFalse(done["ok"])
                self.assertIn(part, done["message"])
                self.assertLessEqual(len(done["message"]), 10_000)
                self.assertLessEqual(len(done["traceback"].encode()), 64 * 1024)
                self.assertLessEqual(len(done["type"]), 500)
        circle = self.child.run("fail_in_a_circle")
        self.assertEqual(circle["traceback"].count("direct cause"), 1)
        chain = self.child.run("fail_in_a_chain", 40)["traceback"]
        self.assertTrue(60_000 < len(chain.encode()) <= 64 * 1024)
        self.assertIn(" bytes) ...", chain)
        self.assertIn("20,003 characters", chain[-100:])
        deep = self.child.run("fail_deep", 150)["traceback"]
        self.assertIn("more frames", deep)
        self.assertIn("KeyError: 'x'", deep)

    def test_sys_exit_is_a_failure_that_explains_itself(self):
        """F40: sys.exit(0) too."""
        for code in (0, None, "text"):
            message = self.failed(self.child.run("leave", code), "fatal", "SystemExit")
            self.assertIn(f"sys.exit({code})", message)
        self.assertTrue(self.child.run("echo")["ok"])

    def test_os_exit_ends_the_socket_without_a_done(self):
        """C091, F40."""
        self.assertIsNone(self.child.run("leave_at_once", 0))

    def test_wrong_arguments_are_fatal(self):
        self.failed(self.child.run("traced", 1, 2, 3), "fatal", "TypeError")


class Ending(WithChild):
    def exit_code(self):
        return self.child.process.wait(support.TIMEOUT_S)

    def test_the_end_of_the_server_ends_the_child(self):
        self.child.socket.close()
        self.child.permits.close()
        self.assertEqual(self.exit_code(), 0)

    def test_term_while_idle_ends_the_child(self):
        self.child.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.exit_code(), 0)

    def test_term_in_a_job_runs_its_finally(self):
        self.child.start("sleep_with_cleanup", 60)
        self.child.wait_for_output("started")
        self.child.process.send_signal(signal.SIGTERM)
        self.child.wait_for_output("cleaned up")
        self.assertIsNone(self.child.read())
        self.assertEqual(self.exit_code(), 0)

    def test_a_job_that_swallows_the_stop_reports_nothing(self):
        self.child.start("swallow_stop", 60)
        self.child.wait_for_output("started")
        self.child.process.send_signal(signal.SIGTERM)
        self.child.wait_for_output("swallowed Stopped")
        self.assertIsNone(self.child.read())
        self.assertEqual(self.exit_code(), 0)

    def test_interrupt_changes_nothing(self):
        self.child.process.send_signal(signal.SIGINT)
        self.assertEqual(self.child.run("raise_signal_int")["result"], "still here")
        self.assertFalse(self.child.run("sigint_of_a_program")["result"])

    def test_what_is_no_frame_ends_the_child(self):
        for data in (struct.pack(">I", 9 << 20), b"\0\0\0\x02[]", b'\0\0\0\x0a{"t":"no"}', b"\0\0\0\0"):
            with self.subTest(data), support.Child() as child:
                child.hello()
                child.permit(TOKEN)
                child.socket.sendall(data)
                self.assertIsNone(child.read())
                self.assertEqual(child.process.wait(support.TIMEOUT_S), 4)
                self.assertIn("rea.worker: ", child.errors())

    def test_without_a_server_it_says_who_starts_it(self):
        with support.Child(env={"REA_FD": "nonsense"}) as child:
            self.assertEqual(child.process.wait(support.TIMEOUT_S), 2)
            self.assertIn("rea serve", child.errors())


class Loading(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return [{"file": str(path)}]

    def bad(self, load):
        with support.Child(load) as child:
            frame = child.read()
            self.assertEqual(frame["t"], "bad", frame)
            self.assertEqual(child.process.wait(support.TIMEOUT_S), 3)
        return frame

    def test_the_demo_of_the_article(self):
        with support.Child([{"file": str(support.REPO / "examples" / "demo_task.py")}]) as child:
            tasks = {task["name"]: task for task in child.hello()["tasks"]}
            self.assertEqual(
                tasks["demo_task:send_notice"],
                {"name": "demo_task:send_notice", "priority": 3, "max_attempts": 5},
            )
            child.send(support.run_frame(TOKEN, "demo_task:add", [1, 2]))
            child.permit(TOKEN)
            self.assertEqual(child.read()["result"], 3)

    def test_a_module_is_found_from_the_current_folder(self):
        self.write("app_jobs.py", "from rea.task import task\n@task\ndef f(): pass\n")
        with support.Child([{"module": "app_jobs"}], cwd=self.folder) as child:
            self.assertEqual([task["name"] for task in child.hello()["tasks"]], ["app_jobs:f"])

    def test_a_syntax_error_shows_its_line(self):
        frame = self.bad(self.write("broken.py", "x = 1\ndef f(:\n    pass\n"))
        self.assertEqual(frame["type"], "SyntaxError")
        self.assertIn("broken.py, line 2", frame["message"])
        self.assertIn("def f(:", frame["traceback"])

    def test_an_import_error_shows_the_users_line_and_no_machinery(self):
        frame = self.bad(self.write("importing.py", "import no_such_thing\n"))
        self.assertEqual(frame["type"], "ModuleNotFoundError")
        self.assertIn("importing.py", frame["traceback"])
        self.assertNotIn("importlib", frame["traceback"])
        self.assertNotIn("_load.py", frame["traceback"])

    def test_bad_options_show_what_is_right(self):
        text = "from rea.task import task\n@task(max_attempts=0)\ndef f(): pass\n"
        self.assertIn("whole number from 1", self.bad(self.write("options.py", text))["message"])

    def test_a_file_without_tasks_shows_how_to_write_one(self):
        frame = self.bad(self.write("empty.py", "x = 1\n"))
        self.assertEqual(frame["type"], "NoTasks")
        self.assertIn("@task", frame["message"])
        self.assertIn("empty.py", frame["message"])

    def test_names_that_cannot_be_imported(self):
        frame = self.bad(self.write("my-jobs.py", ""))
        self.assertIn("rename it to my_jobs.py", frame["message"])
        frame = self.bad(self.write("json.py", ""))
        self.assertIn("another module", frame["message"])
        self.assertIn("no file", self.bad([{"file": str(self.folder / "none.py")}])["message"])
        self.assertIn(".py", self.bad(self.write("jobs.txt", ""))["message"])
        self.assertIn("neither", self.bad([{}])["message"])
        self.assertIn("REA_LOAD", self.bad("no json")["message"])

    def test_leaving_at_import(self):
        frame = self.bad(self.write("leaving.py", "import sys\nsys.exit(0)\n"))
        self.assertEqual(frame["type"], "SystemExit")
        self.assertIn("__main__", frame["message"])


if __name__ == "__main__":
    os.chdir(support.HERE)
    unittest.main()
