# Flows on the real server, written down in Python: what they return, how they fail, and that those that run
# in process (`rea.testing.InProcess`) do the same.
import asyncio
import os
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import flow_tasks as t
import rea
import support
from rea import aio, testing
from rea.exception import FlowFailed, JobFailed, Refused, ResultTimeout

WAIT_S = 30


def new_folder(test):
    holder = tempfile.TemporaryDirectory()
    test.addCleanup(holder.cleanup)
    return Path(holder.name)


class OnServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not support.find_program():
            raise unittest.SkipTest("no program rea: set REA_BIN, or build it with cargo")
        patch = mock.patch.dict(os.environ, {"REA_BIN": support.find_program()})
        patch.start()
        cls.addClassCleanup(patch.stop)
        cls.server = testing.Server(t.__file__, workers=4)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def failed(self, flow):
        with self.assertRaises(FlowFailed) as caught:
            flow.result(WAIT_S)
        return caught.exception


class Flows(OnServer):
    def test_results_go_from_node_to_node(self):
        with rea.flow("chain") as flow:
            counted = t.numbers(4)
            doubled = t.double.map(counted, times=3)
            known = t.double.map([10, 20])
            joined = t.total(doubled, known, t.give(0.5))
            t.gather([doubled, {"known": known}])
        self.assertEqual(joined.result(WAIT_S), 0 + 3 + 6 + 9 + 20 + 40 + 0.5)
        self.assertEqual(
            flow.result(WAIT_S),
            {
                "numbers": [0, 1, 2, 3],
                "double": [0, 3, 6, 9],
                "double_2": [20, 40],
                "give": 0.5,
                "total": 78.5,
                "gather": [[0, 3, 6, 9], {"known": [20, 40]}],
            },
        )
        self.assertEqual((flow.state(), doubled.state(), known.state()), ("success", "success", "success"))
        self.assertEqual((counted.result(), doubled.result()), ([0, 1, 2, 3], [0, 3, 6, 9]))
        self.assertEqual(counted.handle().result(), [0, 1, 2, 3])
        by_id = self.server.client.flow_handle(flow.id)
        self.assertEqual(by_id.node_result("double_2"), [20, 40])
        with self.assertRaisesRegex(ValueError, "has no node 'doubl'; it has .*double_2"):
            by_id.node_state("doubl")

    def test_an_empty_map_is_an_empty_list(self):
        with rea.flow("empty") as flow:
            t.gather([t.double.map([]), t.double.map(t.numbers(0))])
        self.assertEqual(
            flow.result(WAIT_S), {"double": [], "numbers": [], "double_2": [], "gather": [[], []]}
        )

    def test_a_failure_is_told_with_its_node(self):
        with rea.flow("bad") as flow:
            bad = t.fail("too bad")
            below = t.give(bad)
            alert = t.give.options(name="alert")("alerted", depends_on=bad, on_failure=True)
        error = self.failed(flow)
        self.assertEqual(
            (error.state, error.name, error.runs, list(error.errors)), ("dead", "bad", 1, ["fail"])
        )
        self.assertIn("fail: ValueError: too bad", str(error))
        self.assertEqual((below.state(), alert.result()), ("skipped", "alerted"))
        for node, pattern in ((bad, "is dead: ValueError: too bad"), (below, "upstream fail is dead")):
            with self.assertRaisesRegex(JobFailed, pattern):
                node.result(WAIT_S)

    def test_a_flow_is_run_again_by_itself(self):
        folder = new_folder(self)
        with rea.flow("again", max_attempts=3) as flow:
            first = t.about()
            flaky = t.fail_first(str(folder), 2)
            below = t.give([first, flaky])
            alert = t.give.options(name="alert")(1, depends_on=flaky, on_failure=True)
        self.assertEqual(
            flaky.result(WAIT_S), "done", "a failure is not the end while the flow has runs left"
        )
        results = flow.result(WAIT_S)
        self.assertEqual(results["give"][1], "done")
        self.assertEqual(results["about"][0], first.task_id, "what had succeeded was not run again")
        newest = flow.refresh()
        self.assertEqual((newest["attempt"], newest["state"]), (3, "success"))
        self.assertEqual((below.state(), alert.state()), ("success", "skipped"))
        with rea.flow("all again", max_attempts=2, retry="all") as flow:
            first = t.about()
            t.fail_first(str(new_folder(self)), 1, first)
        self.assertNotEqual(flow.result(WAIT_S)["about"][0], first.task_id)
        self.assertEqual(flow.refresh()["attempt"], 2)

    def test_a_flow_is_run_again_by_hand(self):
        folder = new_folder(self)
        with rea.flow("by hand") as flow:
            first = t.about()
            t.fail_first(str(folder), 1, first)
        self.failed(flow)
        again = flow.retry()
        self.assertEqual(again.result(WAIT_S)["fail_first"][0], first.task_id)
        self.assertEqual(flow.result(WAIT_S), again.result(), "the first handle follows")
        with self.assertRaises(Refused) as caught:
            flow.retry()
        self.assertEqual(caught.exception.code, "flow_ended")
        everything = flow.retry(from_start=True)
        self.assertNotEqual(everything.result(WAIT_S)["fail_first"][0], first.task_id)

    def test_a_flow_is_run_again_by_hand_from_its_start(self):
        with rea.flow("from start") as flow:
            first = t.about()
            t.fail_first(str(new_folder(self)), 1, first)
        self.failed(flow)
        flow.retry(from_start=True)
        self.assertNotEqual(flow.result(WAIT_S)["about"][0], first.task_id)
        again = flow.retry(from_start=True)
        self.assertEqual(again.result(WAIT_S).keys(), {"about", "fail_first"}, "also what has succeeded")

    def test_a_flow_is_cancelled(self):
        with rea.flow("long") as flow:
            t.give(t.sleep(60))
            t.give.options(delay=60)()
        with self.assertRaisesRegex(ResultTimeout, "flow long .* is still running after 0 s"):
            flow.result(0)
        with self.assertRaisesRegex(ResultTimeout, "node sleep of flow long is still "):
            flow.nodes["sleep"].result(0.2)
        answer = flow.cancel()
        self.assertEqual(answer["cancelled"] + answer["stopping"], 3)
        self.assertEqual(flow.wait(WAIT_S), "cancelled")
        self.assertEqual(self.failed(flow).state, "cancelled")

    def test_a_job_opens_a_flow_of_its_chain(self):
        for opener in (t.open_a_flow, t.open_a_flow_async):
            with self.subTest(opener.name):
                handle = opener.enqueue(3)
                flow_id, root_id = handle.result(WAIT_S)
                self.assertEqual(root_id, handle.task_id)
                flow = self.server.client.flow_handle(flow_id)
                self.assertEqual(flow.result(WAIT_S)["total"], 6)
                self.assertEqual(flow.refresh()["root_id"], handle.task_id)

    def test_the_asyncio_client(self):
        async def work():
            async with aio.flow("async", max_attempts=2) as flow:
                node = t.double.map(t.numbers(3))
                bad = t.fail()
            self.assertEqual(await node.result(WAIT_S), [0, 2, 4])
            with self.assertRaisesRegex(FlowFailed, "after 2 runs; fail: ValueError"):
                await flow.result(WAIT_S)
            self.assertEqual(
                (await flow.state(), await flow.wait(), await bad.state()), ("dead", "dead", "dead")
            )
            again = await flow.retry(from_start=True)
            self.assertEqual(await again.wait(WAIT_S), "dead")
            async with aio.flow("cancelled") as flow:
                t.give.options(delay=60)()
            self.assertEqual(await flow.cancel(), {"cancelled": 1, "stopping": 0})
            self.assertEqual((await flow.refresh())["state"], "cancelled")
            client = aio.default_client()
            written = {"name": "w", "nodes": {"a": {"task": t.give.name, "args": [7]}}}
            flow = await client.submit_flow(written)
            self.assertEqual(await flow.result(WAIT_S), {"a": 7})
            self.assertEqual(await client.flow_handle(flow.id).node_result("a"), 7)
            self.assertEqual(await flow.node_state("a"), "success")

        asyncio.run(work())

    def test_a_flow_written_as_it_is_sent(self):
        written = {
            "name": "written",
            "nodes": {
                "list": {"task": t.numbers.name, "args": [3]},
                "each": {"task": t.double.name, "args": [{"$item": True}], "map": {"result": "list"}},
                "sum": {"task": t.total.name, "args": [{"$result": "each"}]},
            },
        }
        flow = self.server.client.submit_flow(written)
        self.assertEqual(flow.result(WAIT_S), {"list": [0, 1, 2], "each": [0, 2, 4], "sum": 6})
        again = self.server.client.submit_flow({**written, "flow_id": flow.id})
        self.assertEqual(again.id, flow.id)
        for wrong, pattern in [
            ({**written, "nodes": {"a": {"task": "flow_tasks:giv"}}}, 'node "a"'),
            ({**written, "nodes": {"a": {"task": t.give.name, "depends_on": ["b"]}}}, 'no node "b"'),
        ]:
            with self.assertRaises(Refused) as caught:
                self.server.client.submit_flow(wrong)
            self.assertIn(pattern, str(caught.exception))
        with self.assertRaisesRegex(TypeError, r"the flow is not JSON: \['nodes'\]"):
            self.server.client.submit_flow({"name": "x", "nodes": object()})

    def test_a_job_waits_for_a_job(self):
        path = str(new_folder(self) / "go")
        first = t.wait_for_file.enqueue(path)
        second = t.give.options(depends_on=first).enqueue("after")
        never = t.give.options(depends_on=first, on_failure=True).enqueue("never")
        self.assertTrue(second.refresh()["blocked"])
        Path(path).touch()
        self.assertEqual(second.result(WAIT_S), "after")
        with self.assertRaisesRegex(JobFailed, "is skipped"):
            never.result(WAIT_S)

    def test_a_job_waits_for_a_job_of_its_batch(self):
        with rea.batch() as batch:
            first = batch.enqueue(t.double, 4)
            second = batch.enqueue(t.give.options(depends_on=first), "after")
        self.assertEqual(second.result(WAIT_S), "after")
        self.assertEqual(second.refresh()["depends_on"][0]["task_id"], first.task_id)


class Cases(OnServer):
    """Of the list of known faults of other systems: each is named after its number there."""

    def test_c033_what_waits_for_a_dead_job_is_skipped_with_the_reason(self):
        with rea.flow("c033") as flow:
            a = t.fail()
            b = t.give(depends_on=a)
            c = t.give(depends_on=b)
        flow.wait(WAIT_S)
        self.assertEqual([a.state(), b.state(), c.state()], ["dead", "skipped", "skipped"])
        jobs = [node.handle().refresh() for node in (a, b, c)]
        self.assertIn("upstream fail is dead", jobs[1]["last_error"]["message"])
        self.assertIn("upstream give is skipped", jobs[2]["last_error"]["message"])
        self.assertEqual(len({job["finished_at"] for job in jobs}), 1, "in the same transaction")

    def test_c034_a_parent_that_was_deleted_is_unknown_and_never_waited_for(self):
        parent = t.give.enqueue(1)
        parent.result(WAIT_S)
        self.prune()
        with self.assertRaises(Refused):
            parent.refresh()
        for write in (
            lambda: t.give.options(depends_on=parent).enqueue(),
            lambda: self.submit(depends_on=parent.task_id),
            lambda: self.submit(value=parent),
        ):
            with self.assertRaises(Refused) as caught:
                write()
            self.assertEqual((caught.exception.code, caught.exception.status), ("unknown_parent", 422))

    def prune(self):
        """Deletes what has ended, as if it was kept for no time."""
        self.server.client._transport.exchange("POST", "/prune", b'{"older_than": 0}', repeatable=False)

    def submit(self, value=None, **words):
        with rea.flow("c034"):
            t.give(value, **words)

    def test_c035_a_join_gets_one_decision_when_one_of_its_parents_fails_early(self):
        # The same times as in the report, shorter; jobs that ended are deleted at once.
        with rea.flow("c035") as flow:
            a = t.fail()
            b, c = t.sleep(1.0, "b"), t.sleep(1.0, "c")
            join = t.gather([a, b, c])
            after = t.give("after", depends_on=[a, b, c], on_finish=True)
        with self.assertRaisesRegex(JobFailed, "skipped: upstream fail is dead"):
            join.result(WAIT_S)
        self.assertEqual(flow.state(), "running", "B and C go on")
        self.prune()
        self.assertEqual((b.result(WAIT_S), c.result(WAIT_S)), ("b", "c"))
        self.assertEqual((after.result(WAIT_S), flow.wait(WAIT_S)), ("after", "dead"))
        self.assertEqual(len(flow.refresh()["nodes"]), 5)
        self.assertEqual(join.handle().refresh()["attempt"], 0)

    def test_c036_cycles_are_refused_with_their_path_in_under_a_second(self):
        def node(*parents):
            return {"task": t.give.name, "depends_on": list(parents)}

        chain = {f"n{number}": node(*[f"n{number - 1}"] if number else []) for number in range(10_000)}
        long_way = {**chain, "n4000": node("n3999", "n9999")}
        for nodes, pattern in [
            (
                {"A": node("C"), "B": node("A"), "C": node("B")},
                r"each other: (A → B → C|B → C → A|C → A → B) → ",
            ),
            ({"A": node("A")}, "each other: A → A"),
            (long_way, r"each other: n\d+ → .*\(\d+ more\)"),
        ]:
            began_s = time.monotonic()
            with self.assertRaisesRegex(Refused, pattern) as caught:
                self.server.client.submit_flow({"name": "c036", "nodes": nodes})
            self.assertEqual((caught.exception.code, caught.exception.status), ("cycle", 422))
            self.assertLess(time.monotonic() - began_s, 1.0 * slow())
        self.assertEqual(t.give.enqueue("undisturbed").result(WAIT_S), "undisturbed")
        answer = self.server.client._transport.exchange("GET", "/flows?name=c036", repeatable=True)
        self.assertEqual(answer["flows"], [], "nothing of them was stored")

    def test_c037_a_retried_parent_brings_back_what_it_had_skipped(self):
        folder = new_folder(self)
        with rea.flow("c037") as flow:
            a = t.fail_first(str(folder), 1, "A")
            b = t.give(a)
            alert = t.give.options(name="alert")("alert", depends_on=a, on_failure=True)
        self.failed(flow)
        self.assertEqual((b.state(), alert.state()), ("skipped", "success"))
        a.handle().retry()
        self.assertEqual(b.result(WAIT_S), "A")
        self.assertEqual(flow.wait(WAIT_S), "success")

    def test_c038_edges_bind_to_the_run_and_not_to_a_name(self):
        folder = new_folder(self)

        def run(path, fails):
            with rea.flow("c038") as flow:
                a = t.wait_for_file(str(path), fails)
                b = t.give("b", depends_on=a)
            return flow, b

        first, b1 = run(folder / "first", False)
        second, b2 = run(folder / "second", True)
        (folder / "second").touch()
        self.assertEqual(second.wait(WAIT_S), "dead")
        (folder / "first").touch()
        self.assertEqual((first.wait(WAIT_S), b1.result(WAIT_S)), ("success", "b"))
        self.assertEqual((second.state(), b2.state()), ("dead", "skipped"))


def slow():
    """How much more time is given: the program under test is mostly a debug build."""
    return 5


class SameInProcess(OnServer):
    """The same flows, on the server and in process: the same states, results and runs."""

    def flows(self):
        """Each writes one down; `folder` is its own."""

        def branches(folder):
            with rea.flow("branches") as flow:
                good, bad = t.give("good"), t.fail()
                t.give("a", depends_on=[good, bad])
                t.give("b", depends_on=[good, bad], on_failure=True)
                t.give("c", depends_on=[good, bad], on_finish=True)
                t.give("d", depends_on=good, on_failure=True)
                skipped = t.give("e", depends_on=bad)
                t.give("f", depends_on=skipped)
                t.give("g", depends_on=skipped, on_failure=True)
                t.give([skipped, bad, good], depends_on={skipped: "finished", bad: "failure"})
            return flow

        def maps(folder):
            with rea.flow("maps") as flow:
                some_fail = t.odd_only.map(t.numbers(4))
                t.gather(some_fail)
                t.gather([some_fail], depends_on=some_fail, on_finish=True)
                t.gather("x", depends_on=some_fail, on_failure=True)
                known = t.odd_only.map([1, 2, 3])
                t.gather(known, depends_on=known, on_finish=True)
                t.gather.map([known, 5][1:], depends_on=known)
                no_list = t.double.map(t.give("no list"))
                t.gather(no_list)
                t.gather(no_list, depends_on=no_list, on_failure=True)
                t.gather([t.double.map([]), t.double.map(t.numbers(0))])
            return flow

        def retried(folder):
            with rea.flow("retried", max_attempts=3) as flow:
                t.third_time("x")
                flaky = t.fail_first(folder, 2)
                t.give([flaky, t.give(1)])
                t.give("alert", depends_on=flaky, on_failure=True)
            return flow

        def retried_map(folder):
            with rea.flow("retried map", max_attempts=2, retry="failed") as flow:
                t.total(t.fail_first.map([folder], 1, 7), t.double.map(t.numbers(3)))
            return flow

        def retried_from_start(folder):
            with rea.flow("from start", max_attempts=2, retry="all") as flow:
                t.gather([t.fail_first(folder, 1), t.double.map(t.numbers(2))])
            return flow

        def retried_by_hand(folder):
            with rea.flow("by hand") as flow:
                t.give([t.fail_first(folder, 2), t.numbers(2)])
                t.double.map(t.numbers(3))
            for from_start in (False, False, True):
                flow.wait(WAIT_S)
                flow.retry(from_start)
            return flow

        return [branches, maps, retried, retried_map, retried_from_start, retried_by_hand]

    def told(self, flow):
        state = flow.wait(WAIT_S)
        runs = flow.refresh()["attempt"]
        states = {name: node.state() for name, node in flow.nodes.items()}
        results = {}
        for name, node in flow.nodes.items():
            try:
                results[name] = node.result(WAIT_S)
            except JobFailed as error:
                results[name] = error.last_error["type"]
        return {"state": state, "runs": runs, "states": states, "results": results}

    def test_same(self):
        for write in self.flows():
            with self.subTest(write.__name__):
                on_server = self.told(write(str(new_folder(self))))
                with testing.InProcess():
                    in_process = self.told(write(str(new_folder(self))))
                self.maxDiff = None
                self.assertEqual(in_process, on_server)


if __name__ == "__main__":
    unittest.main()
