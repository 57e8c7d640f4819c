# Jobs and flows in process: `rea.testing.InProcess`. That flows do there what they do on a server is shown in
# test_flow_server.py.
import asyncio
import os
import tempfile
import unittest

import flow_tasks as t
import rea
import support  # noqa: F401  (puts the package on the path)
from rea import aio, client, testing
from rea.exception import FlowFailed, JobFailed, Refused


class InProcess(unittest.TestCase):
    def setUp(self):
        self.here = testing.InProcess()
        self.here.__enter__()
        self.addCleanup(self.here.__exit__)

    def test_a_flow_runs_when_its_block_ends(self):
        with rea.flow("nightly") as flow:
            rows = t.numbers(3)
            joined = t.total(t.double.map(rows))
        self.assertEqual((flow.state(), joined.result()), ("success", 6))
        self.assertEqual(flow.result(), {"numbers": [0, 1, 2], "double": [0, 2, 4], "total": 6})

    def test_what_became_of_each_attempt_is_told(self):
        with rea.flow("f", max_attempts=2) as flow:
            again = t.third_time("x")
            bad = t.fail("no")
            below = t.give(bad)
        outcome = self.here.outcome(again)
        self.assertEqual((outcome.state, outcome.result), ("success", ["x", 3]))
        outcome = self.here.outcome(bad)
        self.assertEqual((outcome.state, outcome.cause, str(outcome.error)), ("dead", "fatal", "no"))
        self.assertIn("flow_tasks.py", outcome.traceback)
        with self.assertRaisesRegex(KeyError, "no attempt of give was made: it is skipped"):
            self.here.outcome(below)
        with self.assertRaisesRegex(FlowFailed, "flow f .* is dead after 2 runs; fail: ValueError: no"):
            flow.result()
        self.assertEqual(flow.refresh()["attempt"], 2)

    def test_jobs_run_when_they_are_enqueued(self):
        handle = t.double.enqueue(4)
        self.assertEqual((handle.state(), handle.result()), ("success", 8))
        self.assertEqual(self.here.outcome(handle).result, 8)
        with rea.batch() as batch:
            for number in range(3):
                batch.enqueue(t.double, number)
        self.assertEqual(rea.wait(batch.handles), [0, 2, 4])
        bad = t.fail.enqueue()
        with self.assertRaisesRegex(JobFailed, "is dead: ValueError: no"):
            bad.result()
        after = t.give.options(depends_on=bad, on_failure=True).enqueue("alert")
        self.assertEqual(after.result(), "alert")
        self.assertEqual(t.give.options(depends_on=bad).enqueue().state(), "skipped")
        first = t.give.options(key="k").enqueue(1)
        again = t.give.options(key="k").enqueue(1)
        self.assertEqual((again.task_id, again.created), (first.task_id, False))

    def test_what_looks_like_a_place_is_data_where_nothing_is_waited_for(self):
        data = {"$result": "x"}
        self.assertEqual(t.give.enqueue(data).result(), data)

    def test_what_a_job_stores_runs_within_it(self):
        handle = t.open_a_flow.enqueue(3)
        flow_id, root_id = handle.result()
        self.assertEqual(root_id, handle.task_id)
        flow = client.default_client().flow_handle(flow_id)
        self.assertEqual((flow.node_result("total"), flow.refresh()["root_id"]), (6, handle.task_id))
        with rea.flow("outer") as flow:
            inner = t.open_a_flow_async(2)
        self.assertEqual(inner.result()[1], flow.id)

    def test_asyncio(self):
        async def work():
            async def one(count):
                async with aio.flow("f") as flow:
                    inner = t.open_a_flow_async(count)
                self.assertEqual(await flow.state(), "success")
                return (await inner.result())[1] == flow.id

            self.assertEqual(await asyncio.gather(*(one(count) for count in range(5))), [True] * 5)
            handle = await aio.enqueue(t.double, 2)
            self.assertEqual(await handle.result(), 4)

        asyncio.run(work())

    def test_a_flow_is_run_again_by_hand(self):
        with tempfile.TemporaryDirectory() as folder:
            with rea.flow("f") as flow:
                flaky = t.fail_first(folder, 1, t.give("x"))
            self.assertEqual(flow.state(), "dead")
            self.assertEqual(flow.retry().result(), {"give": "x", "fail_first": "x"})
            self.assertEqual(flaky.result(), "x")
            with self.assertRaisesRegex(Refused, "has succeeded"):
                flow.retry()
            self.assertEqual(flow.retry(from_start=True).state(), "success")
            self.assertEqual(len(os.listdir(folder)), 1)

    def test_what_a_server_would_refuse_is_refused(self):
        name = t.give.name
        for code, write in [
            ("unknown_task", lambda: rea.enqueue("nowhere:task")),
            ("unknown_task", lambda: self.submit({"a": {"task": "nowhere:task"}})),
            ("cycle", lambda: self.submit({one: {"task": name, "depends_on": ["b"]} for one in "ab"})),
            ("not_found", lambda: client.default_client().get("x")),
            ("not_in_process", lambda: client.default_client().cancel("x")),
        ]:
            with self.subTest(code), self.assertRaises(Refused) as caught:
                write()
            self.assertEqual(caught.exception.code, code)

    def submit(self, nodes):
        client.default_client().submit_flow({"name": "f", "nodes": nodes})

    def test_ten_thousand_nodes(self):
        with rea.flow("many") as flow:
            t.gather(t.double.map(t.numbers(5_000)))
            t.double.map(range(4_990))
        self.assertEqual(flow.result()["gather"][-1], 9_998)


class Around(unittest.TestCase):
    def test_the_server_before_is_back_after_the_block(self):
        before = client._default
        with testing.InProcess():
            self.assertIsNot(client._default, before)
        self.assertIs(client._default, before)

    def test_a_task_under_test_is_never_written_into_a_flow(self):
        with testing.InProcess(), rea.flow("f") as flow:
            t.give(1)
            self.assertEqual(testing.run(call_another).result, 5)
        self.assertEqual(list(flow.nodes), ["give"])


@rea.task
def call_another():
    return t.give(5)


if __name__ == "__main__":
    unittest.main()
