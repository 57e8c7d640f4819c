# How flows are written down in Python: what is sent, when, and what is said about mistakes.
import asyncio
import contextvars
import threading
import unittest
import uuid

import rea
import rea.job
import support  # noqa: F401  (puts the package on the path)
from rea import aio
from rea.exception import ServerUnreachable
from rea.task import task
from test_client import WithServer


@task
def fetch(day=None):
    return [day]


@task
def clean(rows, deep=None):
    return rows


@task
def report(rows, title=""):
    return title


@task
def example_job(name):
    return name


@task
def with_words(depends_on, on_failure=None):
    return depends_on


@task
async def later(value):
    return value


class Sent(WithServer):
    def nodes(self):
        return {node["name"]: node for node in self.sent()["nodes"]}

    def test_the_form_of_the_article(self):
        with rea.flow("nightly", max_attempts=3, retry="all") as flow:
            job_a = example_job("A")
            job_b = example_job("B", depends_on=job_a)
            job_c = example_job("C", depends_on=job_a, on_failure=True)
        name = example_job.name
        self.assertEqual(len(self.server.requests), 1)
        self.assertEqual(
            self.sent(),
            {
                "name": "nightly",
                "flow_id": flow.id,
                "max_attempts": 3,
                "retry": "all",
                "nodes": [
                    {"name": "example_job", "task": name, "args": ["A"], "kwargs": {}},
                    {
                        "name": "example_job_2",
                        "task": name,
                        "depends_on": ["example_job"],
                        "args": ["B"],
                        "kwargs": {},
                    },
                    {
                        "name": "example_job_3",
                        "task": name,
                        "depends_on": [{"node": "example_job", "on": "failure"}],
                        "args": ["C"],
                        "kwargs": {},
                    },
                ],
            },
        )
        self.assertEqual(uuid.UUID(flow.id).version, 7)
        self.assertTrue(flow.created)
        self.assertEqual(list(flow.nodes.values()), [job_a, job_b, job_c])
        self.assertEqual(len({uuid.UUID(node.task_id) for node in flow.nodes.values()}), 3)
        self.assertEqual(example_job("A"), "A", "outside, calling the function just calls it")

    def test_a_node_as_an_argument_at_any_depth(self):
        with rea.flow("f"):
            report(clean(fetch()))
            both = clean([1, {"a": fetch(), "b": (2, fetch(3))}], deep={"x": [clean([])]})
        nodes = self.nodes()
        self.assertEqual(nodes["report"]["args"], [{"$result": "clean"}])
        self.assertEqual(nodes["clean"]["args"], [{"$result": "fetch"}])
        self.assertEqual(
            nodes[both.name]["args"], [[1, {"a": {"$result": "fetch_2"}, "b": [2, {"$result": "fetch_3"}]}]]
        )
        self.assertEqual(nodes[both.name]["kwargs"], {"deep": {"x": [{"$result": "clean_2"}]}})

    def test_what_a_node_waits_for(self):
        known = str(uuid.uuid4())
        with rea.flow("f") as flow:
            a, b = fetch(), fetch()
            stored = example_job.enqueue("stored")
            cases = [
                (a, {}, ["fetch"]),
                ([a, b, a], {}, ["fetch", "fetch_2"]),
                ((a, stored, known), {}, ["fetch", stored.task_id, known]),
                (uuid.UUID(known), {}, [known]),
                ("fetch_2", {}, ["fetch_2"]),
                ({a, a}, {"on_finish": True}, [{"node": "fetch", "on": "finished"}]),
                ({a: "success", b: "finished"}, {}, ["fetch", {"node": "fetch_2", "on": "finished"}]),
                (
                    [a, stored],
                    {"on_failure": True},
                    [{"node": "fetch", "on": "failure"}, {"node": stored.task_id, "on": "failure"}],
                ),
            ]
            made = [example_job(0, depends_on=parents, **words) for parents, words, _ in cases]
            flow.add("other:task", stored, depends_on=a)
            flow.add(rea.JobRequest("other:task", (a,), depends_on=b, on_finish=True, name="by request"))
            flow.add(example_job.options(priority=2), 1, depends_on=a)
        nodes = self.nodes()
        for node, (_, _, wanted) in zip(made, cases):
            with self.subTest(node.name):
                self.assertEqual(nodes[node.name]["depends_on"], wanted)
        self.assertEqual(nodes["task"]["args"], [{"$result": stored.task_id}])
        self.assertEqual(nodes["task"]["depends_on"], ["fetch"])
        self.assertEqual(nodes["by request"]["args"], [{"$result": "fetch"}])
        self.assertEqual(nodes["by request"]["depends_on"], [{"node": "fetch_2", "on": "finished"}])

    def test_options_of_a_node(self):
        with rea.flow("f"):
            first = fetch.options(priority=1, queue="q", timeout=None, name="first", tags=["t"])("monday")
            report.options(delay=60, max_attempts=1)(first, title="x", depends_on=first, on_finish=True)
            report.options(depends_on=first, on_failure=True)([])
        nodes = self.nodes()
        self.assertEqual(
            nodes["first"],
            {
                "name": "first",
                "task": fetch.name,
                "priority": 1,
                "queue": "q",
                "timeout": None,
                "tags": ["t"],
                "args": ["monday"],
                "kwargs": {},
            },
        )
        self.assertEqual((nodes["report"]["delay"], nodes["report"]["max_attempts"]), (60, 1))
        self.assertEqual(nodes["report"]["depends_on"], [{"node": "first", "on": "finished"}])
        self.assertEqual(nodes["report_2"]["depends_on"], [{"node": "first", "on": "failure"}])

    def test_maps(self):
        with rea.flow("f") as flow:
            rows = fetch()
            over_a_list = clean.map(range(3), deep=rows)
            over_a_node = clean.options(priority=9, name="each").map(rows, depends_on="clean", on_finish=True)
            report([over_a_list, over_a_node])
            report.map(iter([{"a": 1}]), "title")
            report.map(example_job.enqueue("stored"))
        nodes = self.nodes()
        self.assertEqual((nodes["clean"]["map"], nodes["clean"]["args"]), ([0, 1, 2], [{"$item": True}]))
        self.assertEqual(nodes["clean"]["kwargs"], {"deep": {"$result": "fetch"}})
        self.assertEqual((nodes["each"]["map"], nodes["each"]["priority"]), ({"result": "fetch"}, 9))
        self.assertEqual(nodes["each"]["depends_on"], [{"node": "clean", "on": "finished"}])
        self.assertEqual(nodes["report"]["args"], [[{"$result": "clean"}, {"$result": "each"}]])
        self.assertEqual(nodes["report_2"]["args"], [{"$item": True}, "title"])
        self.assertEqual(set(nodes["report_3"]["map"]), {"result"})
        self.assertEqual(clean.map([1, 2]), [1, 2], "outside, it just calls")
        with self.assertRaisesRegex(RuntimeError, r"a job for each item: clean\[0\]"):
            over_a_list.task_id  # noqa: B018
        self.assertEqual(over_a_node.task_id, flow.nodes["each"].handle().task_id)

    def test_names_are_the_functions_and_numbered(self):
        with rea.flow("f") as flow:
            fetch.options(name="fetch_2")()
            for _ in range(3):
                fetch()
            flow.add("mail")
            flow.add(f"odd:{uuid.UUID(int=7)}")
            flow.add("odd[1]")
            flow.add("m:" + "x" * 190)
            flow.add("m:" + "x" * 190)
        names = list(flow.nodes)
        self.assertEqual(names[:5], ["fetch_2", "fetch", "fetch_3", "fetch_4", "mail"])
        self.assertEqual(names[5:7], [f"{uuid.UUID(int=7)}_1", "odd[1]_1"])
        self.assertTrue(all(len(name) <= 200 for name in names))

    def test_what_is_sent_is_what_was_there_at_the_call(self):
        rows = [1]
        with rea.flow("f"):
            clean(rows)
            rows.append(2)
        self.assertEqual(self.nodes()["clean"]["args"], [[1]])

    def test_an_error_in_the_block_stores_nothing(self):
        with self.assertRaises(KeyError), rea.flow("f") as flow:
            a = fetch()
            raise KeyError("x")
        self.assertEqual(self.server.requests, [])
        for ask in (flow.state, a.result, lambda: a.task_id):
            with self.assertRaisesRegex(
                RuntimeError, "flow 'f' is not stored: its `with` block ended with KeyError"
            ):
                ask()
        self.assertEqual(fetch(1), [1], "calls are calls again")

    def test_a_lost_reply_is_repeated_with_the_same_id(self):
        self.server.script = ["lose reply"]
        with rea.flow("f") as flow:
            fetch()
        self.assertEqual([one[2]["flow_id"] for one in self.server.requests], [flow.id, flow.id])
        self.assertEqual(len(self.server.flows), 1)
        self.server.script = ["lose reply", "lose reply"]
        with self.assertRaisesRegex(ServerUnreachable, r"may have been stored.*flow_id='") as caught:
            with rea.flow("f") as lost:
                fetch()
        self.assertIn(lost.id, str(caught.exception))
        with self.assertRaisesRegex(RuntimeError, "has not confirmed"):
            lost.state()
        with rea.flow("f", flow_id=lost.id) as found:
            fetch()
        self.assertEqual((found.id, found.created), (lost.id, False))

    def test_a_flow_that_a_job_opens_belongs_to_its_chain(self):
        root = str(uuid.uuid4())
        rea.job.begin({"root_id": root})
        self.addCleanup(rea.job.end)
        with rea.flow("f"):
            fetch()
        self.assertEqual(self.sent()["root_id"], root)
        self.client.submit_flow({"name": "g", "nodes": [{"name": "a", "task": "m:a"}]})
        self.assertEqual(self.sent()["root_id"], root)

    def test_edges_of_a_job_by_itself(self):
        parent = example_job.enqueue("parent")
        with rea.flow("f"):
            node = fetch()
        example_job.options(depends_on=parent).enqueue("a")
        self.assertEqual(self.sent()["depends_on"], [parent.task_id])
        example_job.options(depends_on=[parent.task_id, node], on_failure=True).enqueue("b")
        wanted = [{"task_id": one, "on": "failure"} for one in (parent.task_id, node.task_id)]
        self.assertEqual(self.sent()["depends_on"], wanted)
        with self.assertRaisesRegex(TypeError, "name='x' is for a node of a flow"):
            example_job.options(name="x").enqueue("c")
        with self.assertRaisesRegex(ValueError, "depends_on must be a UUID"):
            example_job.options(depends_on="parent").enqueue("c")

    def test_edges_within_a_batch(self):
        with rea.batch() as batch:
            first = batch.enqueue(example_job, "first")
            batch.enqueue(example_job.options(depends_on=first), "second")
        jobs = self.sent()
        self.assertEqual(jobs[1]["depends_on"], [jobs[0]["task_id"]])

    def test_a_stored_node_is_a_job_that_another_flow_may_wait_for(self):
        with rea.flow("one"):
            first = fetch()
        with rea.flow("two"):
            clean(first, depends_on=first, on_finish=True)
        self.assertEqual(self.nodes()["clean"]["args"], [{"$result": first.task_id}])
        self.assertEqual(self.nodes()["clean"]["depends_on"], [{"node": first.task_id, "on": "finished"}])

    def test_parameters_of_the_function_go_before_the_words_of_the_flow(self):
        self.assertEqual(with_words(depends_on=1, on_failure=2), 1)
        with rea.flow("f"):
            a = fetch()
            with_words(depends_on=[5], on_failure=True)
            with_words.options(depends_on=a)(depends_on=6)
        nodes = self.nodes()
        self.assertEqual(nodes["with_words"]["kwargs"], {"depends_on": [5], "on_failure": True})
        self.assertEqual(nodes["with_words_2"]["depends_on"], ["fetch"])
        self.assertEqual(nodes["with_words_2"]["kwargs"], {"depends_on": 6})

    def test_another_thread_just_calls(self):
        found = []
        with rea.flow("f") as flow:
            thread = threading.Thread(target=lambda: found.append(fetch(1)))
            thread.start()
            thread.join()
            fetch()
        self.assertEqual((found, len(flow.nodes)), ([[1]], 1))

    def test_asyncio(self):
        async def work():
            async with aio.flow("f", max_attempts=2) as flow:
                node = later(1)
                going_on = asyncio.ensure_future(self.call_after(event := asyncio.Event()))
                await asyncio.sleep(0)
                clean.options(name="x")(node)
            event.set()
            self.assertEqual(await going_on, [9], "what began in the block and goes on just calls")
            self.assertEqual(list(flow.nodes), ["later", "x"])
            self.assertEqual(flow.nodes["x"].handle().task_id, flow.nodes["x"].task_id)
            with self.assertRaisesRegex(ValueError, "no nodes"):
                async with aio.flow("g"):
                    pass

            async def one(name):
                async with aio.flow(name) as flow:
                    await asyncio.sleep(0.01)
                    later(name)
                    await asyncio.sleep(0.01)
                    later(name)
                return list(flow.nodes)

            self.assertEqual(await asyncio.gather(one("a"), one("b")), [["later", "later_2"]] * 2)

        asyncio.run(work())

    async def call_after(self, event):
        await event.wait()
        return fetch(9)


class Mistakes(WithServer):
    """Each says what, where, and what would be right; nothing is sent."""

    def refused(self, kind, pattern, write):
        with self.subTest(pattern):
            with self.assertRaisesRegex(kind, pattern), rea.flow("f") as flow:
                write(flow)
            self.assertIsNone(rea._node.current_flow())

    def test_arguments(self):
        for kind, pattern, write in [
            (
                TypeError,
                r"argument 1 of .*clean is not JSON: \[1\] is of type set; pass sorted",
                lambda _: clean([fetch(), {1}]),
            ),
            (
                TypeError,
                r"argument deep of .*clean is not JSON: \['a'\] is of type object",
                lambda _: clean(1, deep={"a": object(), "b": fetch()}),
            ),
            (
                TypeError,
                r"the list of .*clean\.map is not JSON: \[0\] is of type bytes",
                lambda _: clean.map([b""]),
            ),
            (
                ValueError,
                r"argument deep of .*clean: \[1\]\['a'\] is a dict whose first key is one of \$result",
                lambda _: clean(1, deep=[0, {"a": {"$result": "x"}}]),
            ),
            (
                ValueError,
                r"argument 1 of .*clean: it is a dict whose first key",
                lambda _: clean({"$item": True}),
            ),
            (ValueError, r"the list of .*map: \[0\] is a dict whose", lambda _: clean.map([{"$map": 1}])),
            (TypeError, r"clean\(rows, deep=None\): missing a required argument: 'rows'", lambda _: clean()),
            (TypeError, r"unexpected keyword argument 'name'", lambda _: clean(1, name="x")),
            (
                TypeError,
                r"map takes a list, or a node whose result is one, not 'abc'",
                lambda _: clean.map("abc"),
            ),
            (TypeError, r"map takes a list", lambda _: clean.map({"a": 1})),
            (TypeError, r"map takes a list", lambda _: clean.map(5)),
            (
                TypeError,
                r"map takes values.*\[task\(node\) for node in nodes\]",
                lambda _: clean.map([fetch()]),
            ),
            (
                TypeError,
                r"argument 1 of .*: it is of type rea._flow.Node; only a task of its flow",
                lambda _: clean.enqueue(fetch()),
            ),
        ]:
            self.refused(kind, pattern, write)
        self.assertEqual(self.server.requests, [])
        with rea.flow("ok"):
            clean(['{"$result"'], deep={"a": 1, "$result": 2})  # no markers: a text, and not the first key

    def test_edges_and_names(self):
        for kind, pattern, write in [
            (ValueError, r"on_failure=True needs depends_on=", lambda _: clean(1, on_failure=True)),
            (
                ValueError,
                r"give on_failure or on_finish, not both",
                lambda _: clean(1, depends_on=fetch(), on_failure=True, on_finish=True),
            ),
            (
                ValueError,
                r"on_finish must be True or False, not 'a'",
                lambda _: clean(1, depends_on=fetch(), on_finish="a"),
            ),
            (
                ValueError,
                r"depends_on=\{\.\.\.\} says how each parent must end",
                lambda _: clean(1, depends_on={fetch(): "failure"}, on_failure=True),
            ),
            (
                ValueError,
                r"depends_on\[\.\.\.\] must be one of 'success', 'failure', 'finished', not 'dead'",
                lambda _: clean(1, depends_on={fetch(): "dead"}),
            ),
            (
                TypeError,
                r"depends_on must be a node of the flow, the handle or the id of a job.*not 5",
                lambda _: clean(1, depends_on=[5]),
            ),
            (
                ValueError,
                r"flow 'f' has no node 'fech' yet; did you mean 'fetch'\?",
                lambda _: (fetch(), clean(1, depends_on="fech")),
            ),
            (
                TypeError,
                r"is in options\(\.\.\.\) and in the call",
                lambda _: clean.options(depends_on=fetch())(1, depends_on=fetch()),
            ),
            (ValueError, r"has a node 'x' already", lambda _: [fetch.options(name="x")() for _ in range(2)]),
            (ValueError, r"name='x\[1\]' can't name a node", lambda _: fetch.options(name="x[1]")()),
            (ValueError, r"can't name a node", lambda _: fetch.options(name=str(uuid.uuid4()))()),
            (ValueError, r"name must be printable text", lambda _: fetch.options(name="")()),
            (ValueError, r"flow 'f' has no nodes: call tasks", lambda _: None),
        ]:
            self.refused(kind, pattern, write)
        for pattern, wrong in [
            ("the flow's name must be printable", {"name": ""}),
            ("max_attempts must be a whole number from 1", {"name": "f", "max_attempts": 0}),
            ("retry must be one of 'failed', 'all', not 'some'", {"name": "f", "retry": "some"}),
            ("flow_id must be a UUID", {"name": "f", "flow_id": "x"}),
        ]:
            with self.subTest(pattern), self.assertRaisesRegex(ValueError, pattern):
                rea.flow(**wrong)
        self.assertEqual(self.server.requests, [])

    def test_a_node_is_not_its_result(self):
        for pattern, use in [
            ("put into a text", lambda node: f"{node}"),
            ("asked whether it is true", lambda node: 1 if node else 2),
            (r"gone through.*task\.map\(node\)", lambda node: [*node]),
            ("looked into", lambda node: node["a"]),
            ("awaited: .* pass it to a task, without await", lambda node: asyncio.run(wait_for(node))),
            ("put into a text", lambda node: "day: %s" % node),
            ("put into a text", lambda node: "day: " + str(node)),
            ("put into a text", lambda node: "day: {}".format(node)),
            ("put into a text", lambda node: print(node)),
            ("calculated with", lambda node: "day: " + node),
            ("calculated with", lambda node: node + [1]),
            ("calculated with", lambda node: node % 2),
            ("calculated with", lambda node: 2 * -node),
            ("calculated with", lambda node: sum([node])),
            ("compared", lambda node: node == [3, 1, 2]),
            ("compared", lambda node: [3, 1, 2] != node),
            ("compared", lambda node: node in [1, 2]),
            ("compared", lambda node: node > 1),
            ("compared", lambda node: 1 <= node),
            ("asked for its length", len),
            ("made a number", int),
            ("made a number", lambda node: [1, 2][node]),
            ("looked into", lambda node: 1 in node),
            ("called", lambda node: node()),
        ]:
            self.refused(
                TypeError, f"<rea node fetch of flow f> can't be {pattern}", lambda _, use=use: use(fetch())
            )
        self.refused(AttributeError, "has no 'rows': it stands for a result", lambda _: fetch().rows)

    def test_a_node_is_itself_and_no_other(self):
        with rea.flow("f"):
            one, two = fetch(), fetch()
        self.assertTrue(one == one and one != two and not one == two)
        self.assertEqual(({one: 1, two: 2}[two], [two, one].index(one), len({one, two, one})), (2, 1, 2))
        self.assertEqual(repr(one), "<rea node fetch of flow f>")

    def test_what_is_no_flow_is_not_submitted(self):
        for wrong in ("nightly.toml", [("name", "f")], None):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "submit_flow takes a dict such as .*rea flow submit"):
                rea.Client(self.server.url).submit_flow(wrong)
        self.assertEqual(self.server.requests, [])

    def test_outside_its_flow(self):
        with rea.flow("one"):
            node = fetch()
        for call in (lambda: clean(node), lambda: clean(1, deep=node)):
            with self.assertRaisesRegex(TypeError, "called with <rea node fetch of flow one> outside"):
                call()
        with self.assertRaisesRegex(TypeError, r"called with depends_on= outside a flow.*\.enqueue\("):
            clean(1, depends_on=5)
        with self.assertRaises(KeyError), rea.flow("lost"):
            lost = fetch()
            raise KeyError
        self.refused(
            ValueError, "<rea node fetch of flow lost> belongs to another flow", lambda _: clean([lost])
        )
        self.refused(ValueError, "belongs to another flow", lambda _: clean(1, depends_on=lost))

    def test_twice_and_inside_each_other(self):
        with rea.flow("one") as flow:
            fetch()
        with self.assertRaisesRegex(RuntimeError, "flow 'one' was written down before"):
            flow.__enter__()
        with self.assertRaisesRegex(RuntimeError, "takes nodes in its `with` block only"):
            flow.add(fetch)
        self.refused(RuntimeError, "flow 'two' begins in the block of flow 'f'", lambda _: open_another())
        self.assertEqual(len(self.server.requests), 1)

    def test_ten_thousand_nodes_and_no_more(self):
        with rea.flow("most"):
            for number in range(10_000):
                example_job(number)
        self.assertEqual(len(self.sent()["nodes"]), 10_000)
        self.refused(ValueError, "more than 10,000 nodes; run a list with task.map", lambda _: many(10_001))


async def wait_for(node):
    return await node


def open_another():
    with rea.flow("two"):
        fetch()


def many(count):
    for number in range(count):
        example_job(number)


class Context(WithServer):
    def test_a_copied_context_after_the_block_just_calls(self):
        with rea.flow("f"):
            fetch()
            inside = contextvars.copy_context()
        self.assertEqual(inside.run(fetch, 1), [1])
        self.assertEqual(inside.run(clean.map, [1]), [1])


if __name__ == "__main__":
    unittest.main()
