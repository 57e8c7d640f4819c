# What a job must not be able to do to the protocol, its log, or the next job in the same process.
import os
import signal
import tempfile
import time
import unittest
from pathlib import Path

import support
from test_child_run import WithChild


class Output(WithChild):
    def test_all_roads_to_stdout_lead_to_the_log_in_order(self):
        """C121, C122: the protocol has its own descriptor; stdout is only log."""
        self.assertTrue(self.child.run("say_by_all_roads")["ok"])
        self.assertEqual(self.child.output(), "printed,written,from a grandchild,no newline")

    def test_output_is_there_before_done(self):
        for number in range(50):
            self.child.run("say", f"line {number}", end="")
            self.assertEqual(self.child.output(), f"line {number}")

    def test_c_output_is_there_before_done(self):
        """C122; needs the server to start Python with -u, which makes C's stdout unbuffered too."""
        self.child.run("say_in_c")
        self.assertEqual(self.child.output(), "from C")

    def test_fake_frames_do_nothing(self):
        """F34, C121."""
        fake = '\0\0\0\x30{"t":"done","token":"0000000000000001","ok":true}'
        done = self.child.run("say", fake)
        self.assertIsNone(done["result"])
        self.assertEqual(self.child.output(), fake + "\n")

    def test_any_character_can_be_printed_in_any_locale(self):
        """C116."""
        env = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        with support.Child(env=env) as child:
            child.hello()
            self.assertTrue(child.run("say", "中文 🎉 שלום \ud800")["ok"])
            self.assertEqual(child.output(), "中文 🎉 שלום \\ud800\n")

    def test_closed_descriptors_are_back_for_the_next_job(self):
        """C121: os.close(1); F34: closes 0 to 2."""
        # Printing into a closed descriptor is the job's own failure, and told as such.
        self.assertEqual(self.child.run("close_output")["type"], "OSError")
        for closer in ("close_output", "close_low", "shut_stdout", "replace_stdout"):
            with self.subTest(closer):
                self.child.run(closer)
                self.child.output()
                self.assertTrue(self.child.run("say", "next")["ok"])
                self.assertEqual(self.child.output(), "next\n")

    def test_a_redirected_stdout_does_not_swallow_the_next_job(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "stolen"
            self.child.run("steal_output", str(path))
            self.child.run("say", "next")
            self.assertEqual(self.child.output(), "next\n")
            self.assertEqual(path.read_text(), "")


class Leftovers(WithChild):
    def flags(self, task, *args):
        done = self.child.run(task, *args)
        self.assertTrue(done["ok"], done)
        return done.get("dirty", False), done.get("spawned", False)

    def test_a_thread_left_behind_is_dirty_one_that_ended_is_not(self):
        """C071, F32."""
        self.assertEqual(self.flags("leave_thread", 60), (True, False))
        with support.Child() as other:
            other.hello()
            for _ in range(20):
                self.assertNotIn("dirty", other.run("use_thread"))
            # Ends within the short grace: no reason to replace a child.
            self.assertNotIn("dirty", other.run("leave_thread", 0.003))

    def test_processes_are_told(self):
        """C070: whoever was started may have left others; only the server can see those."""
        for task in (
            "use_process",
            "leave_process",
            "fork_quietly",
            "fork_and_fail",
            "spawn_pool",
        ):
            with self.subTest(task):
                dirty, spawned = self.flags(task)
                self.assertTrue(spawned)
                self.assertFalse(dirty)

    def test_processes_started_by_c_code_are_told(self):
        self.assertEqual(self.flags("fork_in_c"), (False, True))
        # The function is known now and could be called again unseen.
        self.assertEqual(self.flags("echo"), (False, True))

    def test_a_clean_job_after_a_spawning_one_is_clean(self):
        self.flags("use_process")
        self.assertEqual(self.flags("echo"), (False, False))

    def test_a_forked_copy_never_answers(self):
        """The copy that comes back out of the function must not send a second `done`."""
        self.assertEqual(self.child.run("fork_quietly")["result"], 0)
        self.assertTrue(self.child.run("fork_and_fail")["ok"])
        self.assertEqual(self.child.run("echo", 1)["result"]["args"], [1])
        self.assertIn("the copy fails", self.child.errors())

    def test_a_forked_copy_does_not_hold_the_socket(self):
        pid = self.child.run("leave_fork")["result"]
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        self.child.process.kill()
        self.assertIsNone(self.child.read())

    def test_a_limit_that_cannot_be_raised_again_is_dirty(self):
        self.assertEqual(self.flags("lower_limit"), (True, False))

    def test_zombies_are_collected(self):
        pid = self.child.run("leave_process")["result"]
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        self.child.run("fork_quietly")
        self.assertFalse(Path(f"/proc/{pid}").exists())


class Leaks(unittest.TestCase):
    def test_nothing_that_a_job_changes_reaches_the_next(self):
        """F42: environment, folder, umask, signals, mask, timer, locale, context variables."""
        with tempfile.TemporaryDirectory() as folder:
            child = support.Child(env={"KEPT": "yes", "TZ": "UTC"})
            self.addCleanup(child.__exit__)
            child.hello()
            before = child.run("look")["result"]
            self.assertEqual((before["KEPT"], before["fd_in_env"], before["mask"]), ("yes", False, []))
            changed = child.run("change_everything", folder)
            self.assertTrue(changed["ok"], changed)
            after = child.run("look")["result"]
            self.assertEqual(after, before)
            time.sleep(0.4)  # the timer would have ended the child by now
            self.assertEqual(child.run("look")["result"], before)
            child.process.send_signal(signal.SIGTERM)
            self.assertEqual(child.process.wait(support.TIMEOUT_S), 0)


if __name__ == "__main__":
    unittest.main()
