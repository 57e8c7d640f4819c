# The client against a real small HTTP server: what is sent, what comes back, and what happens when it breaks.
import datetime
import os
import threading
import time
import unittest
import uuid
from unittest import mock

import rea
import support
from fake_server import FakeServer, problem
from rea import client as client_module
from rea.exception import FlowFailed, JobFailed, ReaError, Refused, ResultTimeout, ServerUnreachable
from rea.request import JobRequest
from rea.task import task

UTC = datetime.timezone.utc


@task
def add(a, b, trace_id=None):
    return a + b


class WithServer(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer()
        self.addCleanup(self.server.close)
        self.client = rea.connect(self.server.url)
        self.addCleanup(self.client.close)
        self.addCleanup(setattr, client_module, "_default", None)

    def sent(self):
        return self.server.requests[-1][2]


class Enqueue(WithServer):
    def test_only_what_was_given_is_sent(self):
        handle = add.enqueue(1, b=2)
        self.assertEqual(
            self.sent(), {"task": add.name, "args": [1], "kwargs": {"b": 2}, "task_id": handle.task_id}
        )
        self.assertEqual((handle.trace_id, handle.created), ("trace-of-" + handle.task_id, True))

    def test_the_id_is_a_uuid_of_version_7_made_here(self):
        before = time.time_ns() // 1_000_000
        ids = [uuid.UUID(add.enqueue(1, 2).task_id) for _ in range(3)]
        for each in ids:
            self.assertEqual((each.version, each.variant), (7, uuid.RFC_4122))
            self.assertTrue(before <= each.int >> 80 <= time.time_ns() // 1_000_000)
        self.assertEqual(len(set(ids)), 3)

    def test_all_options(self):
        chosen = str(uuid.uuid4())
        add.options(
            priority=1,
            delay=datetime.timedelta(minutes=1),
            start_before=datetime.datetime(
                2030, 1, 1, 8, tzinfo=datetime.timezone(datetime.timedelta(hours=8))
            ),
            key="k",
            queue="q",
            timeout=None,
            max_attempts=2,
            tags=("a", "b"),
            trace_id="t",
            unique_for=3600,
            if_exists="replace",
            concurrency_key="account:7",
            task_id=chosen,
            retry_base=1,
            retry_cap=2.5,
            on_crash="hold",
        ).enqueue(1, 2)
        self.assertEqual(
            self.sent(),
            {
                "task": add.name,
                "args": [1, 2],
                "kwargs": {},
                "priority": 1,
                "delay": 60.0,
                "start_before": "2030-01-01T00:00:00Z",
                "key": "k",
                "queue": "q",
                "timeout": None,
                "max_attempts": 2,
                "tags": ["a", "b"],
                "trace_id": "t",
                "unique_for": 3600,
                "if_exists": "replace",
                "concurrency_key": "account:7",
                "task_id": chosen,
                "retry_base": 1,
                "retry_cap": 2.5,
                "on_crash": "hold",
            },
        )

    def test_run_at_is_utc(self):
        add.options(run_at=0.5).enqueue(1, 2)
        self.assertEqual(self.sent()["run_at"], "1970-01-01T00:00:00.500000Z")
        with self.assertRaisesRegex(ValueError, "no time zone"):
            add.options(run_at=datetime.datetime(2030, 1, 1))
        with self.assertRaisesRegex(ValueError, "not both"):
            add.options(run_at=datetime.datetime.now(UTC), delay=1)
        with self.assertRaisesRegex(ValueError, "Unix time"):
            add.options(run_at=1e18)

    def test_a_wrong_call_fails_here_and_not_as_a_dead_job(self):
        for call in (lambda: add.enqueue(1), lambda: add.enqueue(1, 2, c=3), lambda: add.job(1, 2, 3, 4)):
            with self.assertRaisesRegex(TypeError, "test_client:add|__main__:add"):
                call()
        self.assertEqual(self.server.requests, [])

    def test_arguments_that_are_not_json_are_named(self):
        now = datetime.datetime.now(UTC)
        for call, part in [
            (lambda: add.enqueue(1, now), r"argument 2 of .*isoformat"),
            (lambda: add.enqueue(1, b=[{"at": now}]), r"argument b of .*\[0\]\['at'\].*isoformat"),
            (lambda: add.enqueue(float("nan"), 1), "argument 1 .*NaN"),
            (lambda: add.enqueue("\ud800", 1), "argument 1 .*not valid Unicode"),
        ]:
            with self.subTest(part), self.assertRaisesRegex(TypeError, part):
                call()
        self.assertEqual(self.server.requests, [])

    def test_by_name_and_by_request(self):
        rea.enqueue("other:task", 1, x=2)
        self.assertEqual((self.sent()["task"], self.sent()["kwargs"]), ("other:task", {"x": 2}))
        self.client.enqueue(JobRequest("other:task", [1], priority=2))
        self.assertEqual((self.sent()["args"], self.sent()["priority"]), ([1], 2))
        for wrong in (len, 5, None):
            with self.subTest(wrong), self.assertRaises(TypeError):
                rea.enqueue(wrong)
        with self.assertRaisesRegex(TypeError, "no such option: prio"):
            JobRequest("other:task", prio=2)

    def test_many_at_once(self):
        items = [
            (add, (1, 2)),
            ("x:y", [], {"a": 1}),
            (add, (), {"a": 1, "b": 2}),
            add.options(key="k").job(1, 2),
        ]
        handles = rea.enqueue_many(items)
        self.assertEqual([one["task"] for one in self.sent()], [add.name, "x:y", add.name, add.name])
        self.assertEqual([one["task_id"] for one in self.sent()], [handle.task_id for handle in handles])
        self.assertEqual(len(self.server.requests), 1)
        self.assertEqual(rea.enqueue_many([]), [])
        for wrong in (add, (add, "text"), (add, (1, 2), [3])):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "item 0"):
                rea.enqueue_many([wrong])
        with self.assertRaisesRegex(ValueError, "10,000"):
            rea.enqueue_many([("x:y",)] * 10_001)

    def test_a_job_passes_its_root_id_on(self):
        with support.Child(env={"REA_URL": self.server.url}) as child:
            child.hello()
            done = child.run("enqueue_another")
            self.assertEqual(done["result"], [self.sent()["task_id"], True])
            self.assertNotIn("dirty", done)
        self.assertEqual(self.sent()["root_id"], "0193793e-7f00-7000-8000-000000000002")


class Answers(WithServer):
    def finish(self, handle, **fields):
        self.server.jobs[handle.task_id].update(fields)

    def test_result(self):
        handle = add.enqueue(1, 2)
        self.finish(handle, ends_as={"state": "success", "result": {"big": 2**80}})
        self.assertEqual(handle.state(), "pending")
        self.assertEqual(handle.result(), {"big": 2**80})
        self.assertEqual(self.server.requests[-1][1], f"/jobs/{handle.task_id}?wait=29")
        self.assertEqual(handle.refresh()["state"], "success")

    def test_an_end_without_a_result(self):
        for state in ("dead", "cancelled", "skipped", "held"):
            handle = add.enqueue(1, 2)
            error = {"cause": "fatal", "type": "ValueError", "message": "bad", "traceback": None}
            self.finish(handle, state=state, last_error=error if state == "dead" else None)
            with self.subTest(state), self.assertRaises(JobFailed) as caught:
                handle.result()
            self.assertEqual(caught.exception.state, state)
            self.assertIn(state, str(caught.exception))
            self.assertEqual("ValueError: bad" in str(caught.exception), state == "dead")

    def test_a_reason_that_begins_with_its_type_is_told_once(self):
        for error, text in [
            ({"type": "upstream", "message": "upstream a is dead"}, "job 1 is skipped: upstream a is dead"),
            ({"type": "ValueError", "message": "bad"}, "job 1 is skipped: ValueError: bad"),
            ({"type": "up", "message": "upstream a is dead"}, "job 1 is skipped: up: upstream a is dead"),
            ({"type": None, "cause": "fatal", "message": None}, "job 1 is skipped: fatal: "),
        ]:
            self.assertEqual(str(JobFailed("1", "skipped", error)), text)
        failed = FlowFailed("1", "f", "dead", 1, {"b": {"type": "upstream", "message": "upstream a is dead"}})
        self.assertEqual(str(failed), "flow f (1) is dead; b: upstream a is dead")

    def test_waiting_ends_in_time(self):
        handle = add.enqueue(1, 2)
        start = time.monotonic()
        with self.assertRaises(ResultTimeout):
            handle.result(timeout=0.3)
        self.assertTrue(0.25 < time.monotonic() - start < 2)
        self.assertLess(len(self.server.requests), 12)
        self.assertTrue(issubclass(ResultTimeout, TimeoutError))

    def test_a_restart_during_the_wait_is_waited_for(self):
        handle = add.enqueue(1, 2)
        self.finish(handle, ends_as={"state": "success", "result": 3})
        self.server.script = ["drop", "drop", "drop"]
        self.assertEqual(handle.result(timeout=10), 3)

    def test_cancel_and_retry(self):
        handle = add.enqueue(1, 2)
        self.assertEqual(handle.cancel()["state"], "cancelled")
        self.assertEqual(self.server.requests[-1][:3], ("POST", f"/jobs/{handle.task_id}/cancel", {}))
        self.assertEqual(handle.retry()["state"], "pending")

    def test_a_refusal_tells_code_and_hint(self):
        with self.assertRaises(Refused) as caught:
            self.client.get("../secret?x")
        self.assertEqual(self.server.requests[-1][1], "/jobs/..%2Fsecret%3Fx")
        error = caught.exception
        self.assertEqual((error.code, error.status, error.hint), ("job_not_found", 404, "look in `rea list`"))
        self.assertIn("rea list", str(error))

    def test_a_missing_token_is_explained(self):
        self.server.script = [(401, problem(401, "unauthorized", "a token is needed"))]
        with self.assertRaisesRegex(Refused, "REA_TOKEN"):
            add.enqueue(1, 2)

    def test_something_that_is_not_rea(self):
        self.server.script = [(200, b"<html>"), (502, b"<html>")]
        with self.assertRaisesRegex(ReaError, "is it a rea server"):
            add.enqueue(1, 2)
        with self.assertRaisesRegex(Refused, "is it a rea server"):
            add.enqueue(1, 2)


class Connection(WithServer):
    def test_one_connection_is_kept(self):
        for _ in range(5):
            add.enqueue(1, 2)
        self.assertEqual(self.server.connections, 1)

    def test_a_stale_connection_is_replaced_unseen(self):
        self.server.script = ["close after"]
        add.enqueue(1, 2)
        time.sleep(0.05)
        add.enqueue(1, 2)
        self.assertEqual((len(self.server.jobs), self.server.connections), (2, 2))

    def test_a_lost_reply_makes_no_second_job(self):
        """F23, C097: the repeat carries the same id."""
        self.server.script = ["lose reply"]
        handle = add.enqueue(1, 2)
        self.assertEqual(list(self.server.jobs), [handle.task_id])
        self.assertEqual(len(self.server.requests), 2)

    def test_a_reply_lost_twice_names_the_id(self):
        self.server.script = ["lose reply", "lose reply"]
        with self.assertRaises(ServerUnreachable) as caught:
            add.enqueue(1, 2)
        self.assertIn(next(iter(self.server.jobs)), str(caught.exception))

    def test_what_cannot_be_repeated_does_not_meet_a_stale_connection(self):
        self.server.script = ["close after"]
        handle = add.enqueue(1, 2)
        time.sleep(0.05)
        self.assertEqual(handle.cancel()["state"], "cancelled")

    def test_what_must_not_be_repeated_is_not(self):
        handle = add.enqueue(1, 2)
        self.server.requests.clear()
        self.server.script = ["lose reply"]
        with self.assertRaises(ServerUnreachable):
            handle.retry()
        self.assertEqual(len(self.server.requests), 1)

    def test_no_server(self):
        self.server.close()
        with self.assertRaisesRegex(ServerUnreachable, "rea serve"):
            rea.Client(self.server.url).enqueue(add, 1, 2)
        # In a job that is a reason to try again.
        self.assertTrue(issubclass(ServerUnreachable, ConnectionError))

    def test_a_silent_server(self):
        import socket

        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            client = rea.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
            with self.assertRaisesRegex(ServerUnreachable, "did not answer in time"):
                client.get("x")

    def test_many_threads_share_a_client(self):
        handles, errors = [], []

        def work():
            try:
                for number in range(20):
                    handles.append(self.client.enqueue(add, number, 1))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((errors, len({handle.task_id for handle in handles})), ([], 160))
        self.assertLessEqual(self.server.connections, 8)

    def test_token_and_address_from_the_environment(self):
        import tempfile

        def authorization(client):
            with client:
                client.enqueue(add, 1, 2)
            return self.server.requests[-1][3].get("Authorization")

        with tempfile.NamedTemporaryFile("w") as file:
            file.write("from-file\n")
            file.flush()
            env = {"REA_URL": self.server.url + "/", "REA_TOKEN_FILE": file.name}
            with mock.patch.dict(os.environ, env):
                self.assertEqual(authorization(rea.Client()), "Bearer from-file")
                with mock.patch.dict(os.environ, {"REA_TOKEN": "from-env"}):
                    self.assertEqual(authorization(rea.Client()), "Bearer from-file", "as in all of rea")
                    self.assertEqual(authorization(rea.Client(token="given")), "Bearer given")
                    del os.environ["REA_TOKEN_FILE"]
                    self.assertEqual(authorization(rea.Client()), "Bearer from-env")
        # A server's own file holds several, some of them as hashes.
        with tempfile.NamedTemporaryFile("w") as file, mock.patch.dict(os.environ, REA_TOKEN_FILE=file.name):
            file.write("# ours\n\nsha256:0123 grafana read\nthe-second web admin\nthe-third\n")
            file.flush()
            self.assertEqual(authorization(rea.Client(self.server.url)), "Bearer the-second")
            file.truncate(0)
            file.seek(0)
            file.write("sha256:0123\n")
            file.flush()
            with self.assertRaisesRegex(ValueError, "hashes of tokens alone"):
                rea.Client(self.server.url)
            with mock.patch.dict(os.environ, {"REA_TOKEN": "from-env"}):
                self.assertEqual(authorization(rea.Client(self.server.url)), "Bearer from-env")
        self.assertIsNone(authorization(self.client))
        with mock.patch.dict(os.environ):
            os.environ.pop("REA_URL", None)
            self.assertEqual(rea.Client().url, "http://127.0.0.1:8000")

    def test_wrong_addresses(self):
        for url in ("localhost:8000", "ftp://x", "http://", "http://x:y", "http://a:b@x", "http://x?q"):
            with self.subTest(url), self.assertRaisesRegex(ValueError, "address"):
                rea.Client(url)


if __name__ == "__main__":
    unittest.main()
