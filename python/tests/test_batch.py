# Many jobs at once: gathered, stored all or none, waited for.
import unittest
from unittest import mock

import rea
from fake_server import FakeServer, problem
from rea.exception import JobFailed, Refused, ResultTimeout
from test_client import WithServer, add


class Batches(WithServer):
    def test_all_are_sent_when_the_block_ends(self):
        with rea.batch() as b:
            first = b.enqueue(add, 1, b=2)
            second = b.enqueue(add.options(priority=1, key="k"), 3, 4)
            b.enqueue(add.job(5, 6))
            b.enqueue("other:task", 7)
            self.assertEqual(self.server.requests, [])
            with self.assertRaisesRegex(RuntimeError, "not stored"):
                _ = first.task_id
            self.assertIn("not stored", repr(first))
        self.assertEqual([method + path for method, path, *_ in self.server.requests], ["POST/jobs"])
        sent = self.sent()
        self.assertEqual([one["args"] for one in sent], [[1], [3, 4], [5, 6], [7]])
        self.assertEqual((sent[1]["priority"], sent[1]["key"], sent[3]["task"]), (1, "k", "other:task"))
        self.assertEqual([h.task_id for h in b.handles], [one["task_id"] for one in sent])
        self.assertEqual((second.created, second.trace_id), (True, "trace-of-" + second.task_id))

    def test_an_error_in_the_block_stores_none(self):
        with self.assertRaises(ZeroDivisionError), rea.batch() as b:
            handle = b.enqueue(add, 1, 2)
            raise ZeroDivisionError
        self.assertEqual(self.server.requests, [])
        with self.assertRaisesRegex(RuntimeError, "not stored"):
            handle.result()
        self.assertFalse(hasattr(handle, "nonsense"))

    def test_a_key_that_was_there_is_no_error(self):
        self.server.script = [(201, {"jobs": [{"task_id": "x", "trace_id": "t", "created": False}]})]
        with rea.batch() as b:
            handle = b.enqueue(add.options(key="k"), 1, 2)
        self.assertEqual((handle.task_id, handle.created), ("x", False))

    def test_wrong_arguments_are_told_at_their_line(self):
        with self.assertRaisesRegex(TypeError, "argument 1"), rea.batch() as b:
            b.enqueue(add, object(), 1)
        with self.assertRaisesRegex(TypeError, "missing"), rea.batch() as b:
            b.enqueue(add, 1)
        self.assertEqual(self.server.requests, [])

    def test_what_is_changed_later_is_not_sent(self):
        values = [1]
        with rea.batch() as b:
            b.enqueue(add, values, 1)
            values.append(2)
        self.assertEqual(self.sent()[0]["args"][0], [1])

    def test_the_limit_and_how_to_go_beyond_it(self):
        with self.assertRaisesRegex(ValueError, r"10,001 jobs .*chunk="), rea.batch() as b:
            for _ in range(10_001):
                b.enqueue("x:y")
        self.assertEqual(self.server.requests, [])
        with rea.batch(chunk=4) as b:
            for number in range(10):
                b.enqueue(add, number, 1)
                self.assertEqual(len(self.server.requests), (number + 1) // 4)
        self.assertEqual([len(request[2]) for request in self.server.requests], [4, 4, 2])
        self.assertEqual(len({h.task_id for h in b.handles}), 10)
        for wrong in (0, 10_001, True, "5"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "from 1 to 10000"):
                rea.batch(chunk=wrong)

    def test_chunks_of_big_jobs_are_sent_before_they_are_too_long_for_the_server(self):
        with mock.patch("rea._batch.CHUNK_BYTES", 16_000), rea.batch(chunk=100) as b:
            for _ in range(3):
                b.enqueue("x:y", "x" * 9_000)
        self.assertEqual([len(request[2]) for request in self.server.requests], [2, 1])

    def test_a_refused_batch_stores_none(self):
        self.server.script = [(422, problem(422, "task_unknown", "no task x:y"))]
        with self.assertRaises(Refused), rea.batch() as b:
            handle = b.enqueue("x:y")
        self.assertIn("not stored", repr(handle))

    def test_a_chunk_that_failed_is_not_passed_over(self):
        """Whatever the caller does with the error of one call, the batch does not end as if all were in."""
        refused = (503, problem(503, "disk_full", "no room"))
        for go_on in (True, False):
            self.server.script = [refused]
            with self.subTest(go_on=go_on), self.assertRaisesRegex(RuntimeError, "was not stored") as caught:
                with rea.batch(chunk=2) as b:
                    b.enqueue(add, 1, 1)
                    with self.assertRaises(Refused):
                        b.enqueue(add, 2, 1)
                    if go_on:
                        b.enqueue(add, 3, 1)
            self.assertIsInstance(caught.exception.__cause__, Refused)
        self.assertEqual(len(self.server.requests), 2)

    def test_after_the_block_nothing_is_added(self):
        with rea.batch() as b:
            pass
        with self.assertRaisesRegex(RuntimeError, "inside its `with` block"):
            b.enqueue(add, 1, 2)
        self.assertEqual(self.server.requests, [])


class Waiting(WithServer):
    def setUp(self):
        super().setUp()
        with rea.batch() as b:
            self.handles = [b.enqueue(add, number, 1) for number in range(3)]
        for number, handle in enumerate(self.handles):
            self.server.jobs[handle.task_id].update(state="success", result=number + 1)

    def test_results_come_in_order(self):
        self.assertEqual(rea.wait(self.handles), [1, 2, 3])
        self.assertEqual(rea.wait(iter(self.handles)), [1, 2, 3])
        self.assertEqual(rea.wait([]), [])

    def test_each_is_asked_for_where_it_was_stored(self):
        other = FakeServer()
        self.addCleanup(other.close)
        with rea.Client(other.url) as client:
            there = client.enqueue(add, 1, 2)
            other.jobs[there.task_id].update(state="success", result="there")
            for wait in (rea.wait, self.client.wait, client.wait):
                self.assertEqual(wait([self.handles[0], there, self.handles[1]]), [1, "there", 2])

    def test_what_has_no_result_is_raised_or_stands_in_the_list(self):
        self.server.jobs[self.handles[0].task_id].update(state="dead", last_error=None)
        self.server.jobs[self.handles[1].task_id].update(state="pending")
        with self.assertRaises(JobFailed):
            rea.wait(self.handles)
        failed, late, good = rea.wait(self.handles, timeout=0.2, return_exceptions=True)
        self.assertIsInstance(failed, JobFailed)
        self.assertIsInstance(late, ResultTimeout)
        self.assertIn("0.2 s", str(late))
        self.assertEqual(good, 3)
        with self.assertRaises(ResultTimeout):
            rea.wait(self.handles[1:], timeout=0.1)


if __name__ == "__main__":
    unittest.main()
