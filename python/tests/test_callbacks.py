# Callbacks from end to end: a real server, a receiver of a few lines, and the signature checked by Python's own
# hmac, with the function that docs/callbacks.md gives to receivers.
import http.server
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import rea
import support
from rea import testing
from rea.exception import Refused

PAGE = support.REPO / "docs" / "callbacks.md"

TASKS = """
from rea.task import task
from rea.exception import Fatal
import time

@task
def add(a, b, password=None):
    return a + b

@task
def broken():
    raise Fatal("never")

@task
def slow(seconds):
    time.sleep(seconds)
"""


def documented():
    """The function of the page."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {}
    exec(block, names)
    return names["verified"]


class Receiver:
    """Keeps what comes, and answers each request with the next of `answers`, the last one for ever."""

    def __init__(self, *answers):
        self.got, self.answers = [], list(answers)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append((self.path, self.headers, body))
                status, fields = outer.answers[min(len(outer.got), len(outer.answers)) - 1]
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?of=me"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


ENV = {"PYTHONPATH": str(support.PACKAGE), "REA_BIN": support.find_program() or ""}
OK = (204, {})
NOT_NOW = (503, {"Retry-After": "0"})


@unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
class Callbacks(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = Path(holder.name)
        (folder / "hooks.py").write_text(TASKS)
        self.file = folder / "rea.callback"
        settings = '[serve]\ncallback_secret_file = "rea.callback"\ncallback_allow = ["127.0.0.0/8"]\n'
        (folder / "rea.toml").write_text(settings)
        patch = mock.patch.dict(os.environ, ENV)
        patch.start()
        self.addCleanup(patch.stop)
        self.new_secret()
        self.server = testing.Server(
            folder / "hooks.py", workers=1, args=["--config", str(folder / "rea.toml")]
        )
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.client = self.server.client

    def new_secret(self):
        program = support.find_program()
        made = subprocess.run([program, "callback", "secret", "--file", self.file], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertNotIn(self.secrets()[-1], made.stdout + made.stderr)
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)

    def secrets(self):
        return self.file.read_text().split()

    def receiver(self, *answers):
        receiver = Receiver(*answers)
        self.addCleanup(receiver.close)
        return receiver

    def enqueue(self, task, *args, **options):
        return self.client.enqueue(rea.JobRequest(task, args, **options))

    def callback_of(self, handle):
        """The callback's job, once it has ended."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with support.urlopen(f"{self.server.url}/jobs?queue=callbacks&root_id={handle.task_id}") as answer:
                jobs = json.load(answer)["jobs"]
            if jobs and jobs[0]["state"] in ("success", "dead", "cancelled"):
                self.assertEqual(len(jobs), 1)
                return self.client.get(jobs[0]["task_id"])
            time.sleep(0.05)
        self.fail(f"no callback has ended: {jobs}")

    def test_the_end_is_told_signed_and_again_until_it_is_taken(self):
        receiver = self.receiver(NOT_NOW, NOT_NOW, OK)
        handle = self.enqueue("hooks:add", 2, 3, callback_url=receiver.url, tags=["t"], key="k")
        self.assertEqual(handle.result(timeout=20), 5)
        callback = self.callback_of(handle)
        self.assertEqual((callback["state"], callback["attempt"]), ("success", 3))
        self.assertEqual((callback["task"], callback["result"]), ("rea.callback", {"status": 204}))
        self.assertEqual(len(receiver.got), 3)
        verified = documented()
        for path, headers, body in receiver.got:
            self.assertEqual(path, "/hook?of=me")
            self.assertEqual(headers["webhook-id"], callback["task_id"])
            self.assertTrue(verified(self.secrets()[0], headers, body))
            self.assertFalse(verified(self.secrets()[0], headers, body + b" "))
            self.assertFalse(verified("whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers, body))
        told, job = json.loads(receiver.got[-1][2]), handle.refresh()
        self.assertEqual(told.pop("type"), "job.finished")
        self.assertEqual(told, {name: job[name] for name in told})
        self.assertEqual((told["state"], told["result"], told["key"], told["tags"]), ("success", 5, "k", ["t"]))
        self.assertNotIn("args", told)

    def test_every_end_is_told_and_no_traceback_or_argument_is(self):
        receiver = self.receiver(OK)
        dead = self.enqueue("hooks:broken", callback_url=receiver.url)
        self.callback_of(dead)
        later = self.enqueue("hooks:add", 1, "a-secret-word", callback_url=receiver.url, delay=3600)
        later.cancel()
        self.callback_of(later)
        by_id = {json.loads(body)["task_id"]: json.loads(body) for _, _, body in receiver.got}
        self.assertEqual(by_id[dead.task_id]["state"], "dead")
        error = by_id[dead.task_id]["last_error"]
        self.assertEqual((error["type"], error["message"]), ("rea.exception.Fatal", "never"))
        self.assertNotIn("traceback", error)
        self.assertEqual(by_id[later.task_id]["state"], "cancelled")
        for _, _, body in receiver.got:
            self.assertNotIn(b"a-secret-word", body)
            self.assertNotIn(b"Traceback", body)
        self.assertNotIn("whsec_", self.server.log)

    def test_it_waits_for_the_end_and_takes_no_workers_place(self):
        receiver = self.receiver(OK)
        first = self.enqueue("hooks:slow", 1.0, callback_url=receiver.url)
        # The one worker is busy with the next job when the callback is sent.
        second = self.enqueue("hooks:slow", 3.0)
        time.sleep(0.6)
        self.assertEqual(receiver.got, [])
        callback = self.callback_of(first)
        self.assertEqual(callback["state"], "success")
        self.assertEqual(len(receiver.got), 1)
        self.assertNotEqual(second.state(), "success")

    def test_a_repeated_enqueue_adds_no_callback(self):
        receiver = self.receiver(OK)
        url = receiver.url
        first = self.enqueue("hooks:add", 1, 1, key="once", callback_url=url)
        again = self.enqueue("hooks:add", 1, 1, key="once", callback_url=url)
        self.assertEqual((again.task_id, again.created), (first.task_id, False))
        self.callback_of(first)
        self.enqueue("hooks:add", 1, 1, key="once", callback_url=url)
        self.enqueue("hooks:add", 1, 1, task_id=first.task_id, callback_url=url)
        time.sleep(0.5)
        self.callback_of(first)
        self.assertEqual(len(receiver.got), 1)

    def test_a_refusal_ends_it_and_a_persons_retry_sends_it_again(self):
        receiver = self.receiver((410, {}), (302, {"Location": "http://127.0.0.1:1/"}), OK)
        handle = self.enqueue("hooks:add", 1, 1, callback_url=receiver.url)
        callback = self.callback_of(handle)
        self.assertEqual((callback["state"], callback["attempt"]), ("dead", 1))
        self.assertIn("410", callback["last_error"]["message"])
        self.assertNotIn("of=me", callback["last_error"]["message"])
        self.client.retry(callback["task_id"])
        deadline = time.monotonic() + 20
        while len(receiver.got) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        callback = self.callback_of(handle)
        self.assertEqual((callback["state"], callback["last_error"]["type"]), ("dead", "Redirected"))
        self.client.retry(callback["task_id"])
        deadline = time.monotonic() + 20
        while len(receiver.got) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.callback_of(handle)["state"], "success")
        self.assertEqual({headers["webhook-id"] for _, headers, _ in receiver.got}, {callback["task_id"]})

    def test_while_a_secret_is_changed_both_are_good(self):
        receiver = self.receiver(OK)
        self.new_secret()
        self.callback_of(self.enqueue("hooks:add", 1, 1, callback_url=receiver.url))
        _, headers, body = receiver.got[0]
        old, new = self.secrets()
        self.assertTrue(documented()(old, headers, body) and documented()(new, headers, body))
        self.file.write_text(new + "\n")
        self.callback_of(self.enqueue("hooks:add", 1, 1, callback_url=receiver.url))
        _, headers, body = receiver.got[1]
        self.assertTrue(documented()(new, headers, body))
        self.assertFalse(documented()(old, headers, body))

    def test_an_old_message_is_not_good(self):
        receiver = self.receiver(OK)
        self.callback_of(self.enqueue("hooks:add", 1, 1, callback_url=receiver.url))
        _, headers, body = receiver.got[0]
        with mock.patch("time.time", lambda: int(headers["webhook-timestamp"]) + 301):
            self.assertFalse(documented()(self.secrets()[0], headers, body))

    def test_batches_have_callbacks_too(self):
        receiver = self.receiver(OK)
        requests = [rea.JobRequest("hooks:add", (n, n), callback_url=receiver.url) for n in range(5)]
        requests.append(rea.JobRequest("hooks:add", (9, 9)))
        handles = rea.enqueue_many(requests)
        self.assertEqual([handle.result(timeout=20) for handle in handles], [0, 2, 4, 6, 8, 18])
        for handle in handles[:5]:
            self.callback_of(handle)
        self.assertEqual(sorted(json.loads(body)["result"] for _, _, body in receiver.got), [0, 2, 4, 6, 8])

    def test_slips_are_told(self):
        for url in ("ftp://example.org", "example.org", 5):
            with self.assertRaisesRegex(ValueError, "callback_url must be a URL"):
                rea.JobRequest("hooks:add", (1, 1), callback_url=url)
        for url, told in (
            ("http://10.0.0.1/", "10.0.0.1 is a private address"),
            ("http://[::1]/", "::1 is an address of this machine"),
            ("https://ada:pw@example.org/", "user name"),
        ):
            with self.assertRaises(Refused) as caught:
                self.enqueue("hooks:add", 1, 1, callback_url=url)
            self.assertEqual(caught.exception.code, "invalid_field")
            self.assertIn(told, str(caught.exception))
        with self.assertRaises(Refused) as caught:
            self.enqueue("rea.callback", "http://127.0.0.1/", "x")
        self.assertEqual(caught.exception.code, "invalid_field")


@unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
class Off(unittest.TestCase):
    def test_without_a_secret_they_are_refused(self):
        with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, ENV):
            (Path(name) / "hooks.py").write_text(TASKS)
            with testing.Server(Path(name) / "hooks.py") as server:
                request = rea.JobRequest("hooks:add", (1, 1), callback_url="https://example.org/hook")
                with self.assertRaises(Refused) as caught:
                    server.client.enqueue(request)
                self.assertEqual(caught.exception.code, "callbacks_off")
                self.assertIn("rea callback secret", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
