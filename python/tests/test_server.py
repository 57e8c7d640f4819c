# Python against the real program: rea.testing.Server, async tasks, batches, rea.aio, the pytest plugin.
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

import rea
import support
from rea import _testserver, aio, testing
from rea import client as client_module
from rea.exception import JobFailed, Refused

JOBS = """
import asyncio, os, time
import rea
from rea.task import task

@task
async def add(a, b):
    await asyncio.sleep(0.01)
    return a + b

@task
async def add_by_another_job(a, b):
    handle = await rea.aio.enqueue(add, a, b)
    return [await handle.result(), rea.current_job().task_id]

@task(timeout=0.3, max_attempts=1)
async def too_long(path):
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        with open(path, "a") as file:
            file.write("cleaned up\\n")

@task
async def leave_a_task_running():
    asyncio.ensure_future(asyncio.sleep(60))

@task(max_attempts=1)
def fail(text):
    raise ValueError(text)

@task
def environment(name):
    return os.environ.get(name)
"""


@unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
class WithRealServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        (cls.folder / "jobs.py").write_text(JOBS)
        patch = mock.patch.dict(os.environ, {"REA_BIN": support.find_program()})
        patch.start()
        cls.addClassCleanup(patch.stop)


class Tasks(WithRealServer):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = testing.Server(cls.folder / "jobs.py", env={"OF_THE_TEST": "yes"})
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def test_async_tasks_run_and_enqueue(self):
        self.assertEqual(rea.enqueue("jobs:add", 2, 3).result(), 5)
        handle = rea.enqueue("jobs:add_by_another_job", 2, 3)
        self.assertEqual(handle.result(), [5, handle.task_id])
        chain = [one for one in self.server.log.splitlines() if handle.task_id in one and '"enqueue"' in one]
        self.assertEqual(len(chain), 2, "both jobs have the root of the first")

    def test_an_async_task_over_its_timeout_may_clean_up(self):
        path = self.folder / "cleaned"
        handle = rea.enqueue("jobs:too_long", str(path))
        with self.assertRaises(JobFailed) as caught:
            handle.result()
        self.assertEqual(caught.exception.last_error["cause"], "timeout")
        self.assertEqual(path.read_text(), "cleaned up\n")
        self.assertEqual(rea.enqueue("jobs:add", 1, 1).result(), 2, "the slot works on")

    def test_an_async_task_is_cancelled(self):
        path = self.folder / "cancelled"
        handle = enqueue_with("jobs:too_long", str(path), timeout=60)
        while handle.state() != "running":
            time.sleep(0.01)
        time.sleep(0.1)
        handle.cancel()
        with self.assertRaises(JobFailed) as caught:
            handle.result()
        self.assertEqual((caught.exception.state, path.read_text()), ("cancelled", "cleaned up\n"))

    def test_what_a_job_left_running_is_in_its_log(self):
        handle = rea.enqueue("jobs:leave_a_task_running")
        self.assertIsNone(handle.result())
        with support.urlopen(f"{self.server.url}/jobs/{handle.task_id}/log") as answer:
            self.assertIn("1 asyncio task was still running when the job ended", answer.read().decode())

    def test_a_batch_is_all_or_nothing(self):
        with rea.batch() as b:
            handles = [b.enqueue("jobs:add", number, 1) for number in range(200)]
        self.assertEqual(rea.wait(handles), [number + 1 for number in range(200)])
        with self.assertRaises(Refused) as caught, rea.batch() as b:
            first = b.enqueue("jobs:add", 1, 1)
            b.enqueue("jobs:ad", 1, 1)
        self.assertIn("jobs:add", str(caught.exception), "the nearest name is told")
        self.assertIn("not stored", repr(first))

    def test_a_key_in_a_batch(self):
        before = enqueue_with_key("k1")
        with rea.batch() as b:
            same = b.enqueue(rea.JobRequest("jobs:add", (1, 1), key="k1"))
            new = b.enqueue(rea.JobRequest("jobs:add", (1, 1), key="k2"))
        self.assertEqual((same.created, same.task_id, new.created), (False, before.task_id, True))

    def test_ten_thousand_at_once_and_more_in_chunks(self):
        later = {"delay": 3600}
        with rea.batch() as b:
            for number in range(10_000):
                b.enqueue(rea.JobRequest("jobs:add", (number, 1), **later))
        self.assertTrue(b.handles[-1].created)
        with rea.batch(chunk=5_000) as b:
            for number in range(12_000):
                b.enqueue(rea.JobRequest("jobs:add", (number, 1), **later))
        self.assertEqual(len({handle.task_id for handle in b.handles}), 12_000)

    def test_the_asyncio_client(self):
        async def work():
            handles = await asyncio.gather(*(aio.enqueue("jobs:add", number, 1) for number in range(50)))
            self.assertEqual(await aio.wait(handles), [number + 1 for number in range(50)])
            results = await asyncio.gather(*(handle.result() for handle in handles))
            self.assertEqual(results, [number + 1 for number in range(50)])
            bad = await aio.enqueue("jobs:fail", "no")
            with self.assertRaisesRegex(JobFailed, "ValueError: no"):
                await bad.result()
            with self.assertRaises(Refused):
                await aio.enqueue("jobs:nothing")

        asyncio.run(work())

    def test_settings_for_the_tasks(self):
        self.assertEqual(rea.enqueue("jobs:environment", "OF_THE_TEST").result(), "yes")


def enqueue_with_key(key):
    return rea.enqueue(rea.JobRequest("jobs:add", (1, 1), key=key))


def enqueue_with(name, *args, **options):
    return rea.enqueue(rea.JobRequest(name, args, **options))


class Servers(WithRealServer):
    def test_it_is_the_default_inside_and_gone_after(self):
        before = client_module._default
        with testing.Server(self.folder / "jobs.py", workers=1) as server:
            self.assertIs(client_module.default_client(), server.client)
            folder = server._folder
            self.assertEqual(rea.enqueue("jobs:add", 1, 1).result(), 2)
        self.assertIs(client_module._default, before)
        self.assertFalse(os.path.exists(folder))
        self.assertIn('"stopped"', server.log)
        with self.assertRaises(ConnectionError):
            server.client.get("x")

    def test_code_that_cannot_be_loaded_is_shown(self):
        path = self.folder / "broken.py"
        path.write_text("import no_such_thing\n")
        with self.assertRaisesRegex(RuntimeError, "(?s)ended: .*serve .*no_such_thing"):
            testing.Server(path).__enter__()

    def test_settings_of_the_folder_count_only_when_they_are_named(self):
        path = self.folder / "rea.toml"
        path.write_text("[jobs]\nmax_attempts = 7\n")
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        for args, expected in ([], 3), (["--config", str(path)], 7):
            with testing.Server("jobs.py", workers=1, args=args):
                self.assertEqual(rea.enqueue("jobs:add", 1, 1).refresh()["max_attempts"], expected)

    def test_it_ends_when_the_test_process_is_killed(self):
        code = f"""if True:
            import time
            from rea import testing
            server = testing.Server({str(self.folder / "jobs.py")!r}).__enter__()
            print(server.url, flush=True)
            time.sleep(60)
        """
        env = {**os.environ, "PYTHONPATH": str(support.PACKAGE), "TMPDIR": str(self.folder)}
        process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        url = process.stdout.readline().strip()
        client = rea.Client(url)
        self.addCleanup(client.close)
        handle = client.enqueue("jobs:add", 1, 1)
        self.assertEqual(handle.result(), 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        end = time.monotonic() + 15
        with self.assertRaises(ConnectionError):
            while time.monotonic() < end:
                handle.state()
                time.sleep(0.01)

    def test_a_server_that_has_ended_is_not_signalled(self):
        """Its number may be another's by then."""
        told = 'kill() { echo "$@"; command kill "$@"; }; exec 3<&0; '
        command = ["sh", "-c", told + _testserver._KEEPER, "sh", "sh", "-c", "exit 7"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.wait(10), 7)
        self.assertNotIn("-TERM", process.communicate(timeout=10)[0])

    def test_the_program_is_looked_for(self):
        with mock.patch.dict(os.environ, {"REA_BIN": "/no/such/rea"}):
            with self.assertRaisesRegex(FileNotFoundError, "REA_BIN is '/no/such/rea'"):
                testing.find_program()
        with mock.patch.dict(os.environ):
            program = os.environ.pop("REA_BIN")
            link = self.folder / "rea"
            link.symlink_to(program)
            os.environ["PATH"] = f"{self.folder}:{os.environ['PATH']}"
            with mock.patch("sysconfig.get_path", return_value="/nowhere/bin"):
                self.assertEqual(testing.find_program(), str(link))
                os.environ["PATH"] = "/nowhere"
                with self.assertRaisesRegex(FileNotFoundError, "set REA_BIN"):
                    testing.find_program()


class Plugin(WithRealServer):
    """`python -m pytest` in a project of its own."""

    def setUp(self):
        try:
            import pytest  # noqa: F401
        except ImportError:
            self.skipTest("pytest is not installed")
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.project = Path(holder.name)
        (self.project / "jobs.py").write_text(JOBS)

    def pytest(self, conftest, test):
        (self.project / "conftest.py").write_text(textwrap.dedent(conftest))
        (self.project / "test_jobs.py").write_text(textwrap.dedent(test))
        env = {**os.environ, "PYTHONPATH": str(support.PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "rea.pytest_plugin", "-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=self.project, env=env, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_the_fixture_serves_the_code_that_conftest_names(self):
        code, said = self.pytest(
            """
            import pytest

            @pytest.fixture(scope="session")
            def rea_code():
                return ["jobs.py"]
            """,
            """
            import jobs
            import rea

            def test_add(rea_server):
                assert jobs.add.enqueue(1, 2).result() == 3

            def test_fails(rea_server):
                handle = jobs.fail.enqueue("no")
                assert handle.result() == 1

            def test_without():
                assert False
            """,
        )
        self.assertEqual(code, 1, said)
        self.assertIn("2 failed, 1 passed", said)
        self.assertEqual(said.count("log of the rea server"), 1, said)
        self.assertIn('"task":"jobs:fail"', said)

    def test_a_missing_conftest_is_explained(self):
        code, said = self.pytest("", "def test_add(rea_server):\n    pass\n")
        self.assertEqual(code, 1, said)
        self.assertIn("def rea_code():", said)


if __name__ == "__main__":
    unittest.main()
