# The asyncio client against the same small HTTP server as the plain one; and what only asyncio can do wrong.
import asyncio
import gc
import socket
import time
import unittest
import warnings

import rea
import support
from fake_server import FakeServer, problem
from rea import aio
from rea import client as client_module
from rea.exception import JobFailed, ReaError, Refused, ResultTimeout, ServerUnreachable
from test_client import add


class WithServer(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = FakeServer()
        self.addCleanup(self.server.close)
        self.addCleanup(setattr, client_module, "_default", None)
        rea.connect(self.server.url)

    async def asyncTearDown(self):
        # The loop would do it, but unittest of Python 3.9 ends its loops too early.
        await aio.default_client().close()

    def sent(self):
        return self.server.requests[-1][2]


class Enqueue(WithServer):
    async def test_it_sends_what_the_plain_client_sends(self):
        handle = await aio.enqueue(add, 1, b=2)
        body = {"task": add.name, "args": [1], "kwargs": {"b": 2}, "task_id": handle.task_id}
        self.assertEqual(self.sent(), body)
        self.assertEqual((handle.trace_id, handle.created), ("trace-of-" + handle.task_id, True))
        await aio.enqueue(add.options(priority=1), 1, 2)
        self.assertEqual(self.sent()["priority"], 1)
        await aio.enqueue("x:y", [1])
        self.assertEqual(self.sent()["args"], [[1]])
        handles = await aio.enqueue_many([add.job(1, 2), ("x:y",)])
        self.assertEqual([one["task_id"] for one in self.sent()], [h.task_id for h in handles])
        headers = self.server.requests[-1][3]
        self.assertEqual(headers["Host"], self.server.url[len("http://") :])
        for wrong in (len, None):
            with self.assertRaises(TypeError):
                await aio.enqueue(wrong)

    async def test_batches(self):
        async with aio.batch() as b:
            handle = await b.enqueue(add, 1, 2)
            self.assertIn("not stored", repr(handle))
        self.assertEqual([self.sent()[0]["task_id"]], [handle.task_id])
        with self.assertRaises(ZeroDivisionError):
            async with aio.batch() as b:
                await b.enqueue(add, 1, 2)
                raise ZeroDivisionError
        self.assertEqual(len(self.server.requests), 1)

    async def test_a_chunk_that_failed_is_not_passed_over(self):
        for go_on in (True, False):
            self.server.script = [(503, problem(503, "disk_full", "no room"))]
            with self.subTest(go_on=go_on), self.assertRaisesRegex(RuntimeError, "was not stored") as caught:
                async with aio.batch(chunk=2) as b:
                    await b.enqueue(add, 1, 1)
                    with self.assertRaises(Refused):
                        await b.enqueue(add, 2, 1)
                    if go_on:
                        await b.enqueue(add, 3, 1)
            self.assertIsInstance(caught.exception.__cause__, Refused)
        self.assertEqual(len(self.server.requests), 2)

    async def test_chunks_may_be_filled_by_many_tasks(self):
        async with aio.batch(chunk=7) as b:
            await asyncio.gather(*(b.enqueue(add, number, 1) for number in range(100)))
        self.assertEqual(len({h.task_id for h in b.handles}), 100)
        for handle in b.handles:
            self.assertIn(handle.task_id, self.server.jobs)
        self.assertEqual([len(request[2]) for request in self.server.requests].count(7), 14)

    async def test_the_token_is_sent(self):
        async with aio.Client(self.server.url, token="secret") as client:
            await client.enqueue(add, 1, 2)
        self.assertEqual(self.server.requests[-1][3]["Authorization"], "Bearer secret")
        with self.assertRaisesRegex(ValueError, "printable ASCII"):
            aio.Client(self.server.url, token="a\nb")

    async def test_another_connect_is_followed(self):
        other = FakeServer()
        self.addCleanup(other.close)
        await aio.enqueue(add, 1, 2)
        rea.connect(other.url)
        await aio.enqueue(add, 1, 2)
        self.assertEqual((len(self.server.jobs), len(other.jobs)), (1, 1))


class Answers(WithServer):
    async def test_result_state_cancel_retry(self):
        handle = await aio.enqueue(add, 1, 2)
        self.server.jobs[handle.task_id].update(ends_as={"state": "success", "result": "x" * 300_000})
        self.assertEqual(await handle.state(), "pending")
        self.assertEqual(await handle.result(), "x" * 300_000)
        self.assertIn("?wait=29", self.server.requests[-1][1])
        self.assertEqual((await handle.cancel())["state"], "cancelled")
        with self.assertRaises(JobFailed):
            await handle.result()
        self.assertEqual((await handle.retry())["state"], "pending")
        with self.assertRaises(ResultTimeout):
            await handle.result(timeout=0.2)

    async def test_waiting_for_many(self):
        handles = [await aio.enqueue(add, number, 1) for number in range(3)]
        for number, handle in enumerate(handles):
            self.server.jobs[handle.task_id].update(state="success", result=number)
        self.assertEqual(await aio.wait(handles), [0, 1, 2])
        other = FakeServer()
        self.addCleanup(other.close)
        async with aio.Client(other.url) as client:
            there = await client.enqueue(add, 1, 2)
            other.jobs[there.task_id].update(state="success", result="there")
            self.assertEqual(await aio.wait([handles[0], there, handles[1]]), [0, "there", 1])
        self.server.jobs[handles[1].task_id].update(state="dead", last_error=None)
        found = await aio.wait(handles, return_exceptions=True)
        self.assertIsInstance(found[1], JobFailed)

    async def test_refusals(self):
        with self.assertRaises(Refused) as caught:
            await aio.default_client().get("../secret?x")
        self.assertEqual(self.server.requests[-1][1], "/jobs/..%2Fsecret%3Fx")
        self.assertEqual((caught.exception.code, caught.exception.status), ("job_not_found", 404))
        self.server.script = [(401, problem(401, "unauthorized", "a token is needed"))]
        with self.assertRaisesRegex(Refused, "REA_TOKEN"):
            await aio.enqueue(add, 1, 2)
        self.server.script = [(200, b"<html>"), (502, b"<html>")]
        with self.assertRaisesRegex(ReaError, "is it a rea server"):
            await aio.enqueue(add, 1, 2)
        with self.assertRaisesRegex(Refused, "is it a rea server"):
            await aio.enqueue(add, 1, 2)

    async def test_a_restart_during_the_wait_is_waited_for(self):
        handle = await aio.enqueue(add, 1, 2)
        self.server.jobs[handle.task_id].update(ends_as={"state": "success", "result": 3})
        self.server.script = ["drop", "drop", "drop"]
        self.assertEqual(await handle.result(timeout=10), 3)


class Connection(WithServer):
    async def test_one_connection_is_kept(self):
        for _ in range(5):
            await aio.enqueue(add, 1, 2)
        self.assertEqual(self.server.connections, 1)

    async def test_a_stale_connection_is_replaced_unseen(self):
        self.server.script = ["close after"]
        await aio.enqueue(add, 1, 2)
        await asyncio.sleep(0.05)
        await aio.enqueue(add, 1, 2)
        self.assertEqual((len(self.server.jobs), self.server.connections), (2, 2))

    async def test_a_lost_reply_makes_no_second_job(self):
        self.server.script = ["lose reply"]
        handle = await aio.enqueue(add, 1, 2)
        self.assertEqual((list(self.server.jobs), len(self.server.requests)), ([handle.task_id], 2))
        self.server.script = ["lose reply", "lose reply"]
        with self.assertRaisesRegex(ServerUnreachable, "task_id="):
            await aio.enqueue(add, 1, 2)
        self.server.requests.clear()
        self.server.script = ["lose reply"]
        with self.assertRaises(ServerUnreachable):
            await handle.retry()
        self.assertEqual(len(self.server.requests), 1)

    async def test_many_tasks_share_a_client(self):
        handles = await asyncio.gather(*(aio.enqueue(add, number, 1) for number in range(100)))
        self.assertEqual(len({handle.task_id for handle in handles}), 100)
        connections = self.server.connections
        await asyncio.gather(*(aio.enqueue(add, number, 1) for number in range(8)))
        self.assertEqual(self.server.connections, connections, "up to 8 connections are kept")

    async def test_no_server(self):
        self.server.close()
        with self.assertRaisesRegex(ServerUnreachable, "rea serve"):
            await aio.enqueue(add, 1, 2)

    async def test_a_cancelled_request_takes_no_later_answer(self):
        """The answer of the cancelled one must not be read as that of the next."""
        await aio.enqueue(add, 1, 2)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            client = aio.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=60)
            request = asyncio.ensure_future(client.get("first"))
            await asyncio.sleep(0.05)
            server_side = silent.accept()[0]
            request.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await request
            server_side.settimeout(5)
            data = server_side.recv(65536)
            self.assertIn(b"GET /jobs/first HTTP/1.1\r\n", data)
            self.assertEqual(server_side.recv(1), b"", "the connection is closed")
            server_side.close()
            client = aio.Client(client.url, timeout=0.1)
            begun = time.monotonic()
            with self.assertRaisesRegex(ServerUnreachable, "did not answer in time"):
                await client.get("x")
            self.assertLess(time.monotonic() - begun, 2)

    async def test_other_forms_of_answers(self):
        """Proxies send chunks, old ones end the answer with the connection; others speak no HTTP at all."""
        body = b'{"state": "success"}'
        chunked = b"%x;ext=1\r\n%b\r\n%x\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (
            5,
            body[:5],
            len(body) - 5,
            body[5:],
        )
        good = [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
            b"HTTP/1.0 200 OK\r\n\r\n" + body,
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body),
        ]
        bad = [
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
            b"",
        ]
        answers = []

        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answers[0])
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = aio.Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=5)
        for answer in good:
            answers[:] = [answer]
            with self.subTest(answer):
                self.assertEqual(await client.get("x"), {"state": "success"})
        for answer in bad:
            answers[:] = [answer]
            with self.subTest(answer[:40]), self.assertRaises(ServerUnreachable):
                await client.get("x")
        server.close()


class Loops(unittest.TestCase):
    def test_each_loop_has_its_own_connections_and_closes_them(self):
        server = FakeServer()
        self.addCleanup(server.close)
        client = aio.Client(server.url)

        async def work():
            await client.enqueue(add, 1, 2)
            await client.enqueue(add, 1, 2)

        gc.collect()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                asyncio.run(work())
            gc.collect()
        self.assertEqual([str(each.message) for each in told], [])
        self.assertEqual((server.connections, len(server.jobs)), (3, 6))
        self.assertEqual(len(client._transport._pools), 1, "loops that have ended are forgotten")

    def test_loops_come_and_go_in_other_threads_meanwhile(self):
        server = FakeServer()
        self.addCleanup(server.close)
        client = aio.Client(server.url)
        pools = client._transport._pools

        class Ended:
            """A loop of another thread: while it is looked at, that thread forgets it and begins another."""

            def is_closed(self):
                pools.pop(self, None)
                pools[object()] = None
                return True

        pools[Ended()] = pools[Ended()] = None
        asyncio.run(client.enqueue(add, 1, 2))
        self.assertEqual(len(server.jobs), 1)

    def test_a_job_enqueues_from_its_loop_and_passes_its_root_id_on(self):
        server = FakeServer()
        self.addCleanup(server.close)
        load = [{"file": str(support.HERE / "async_tasks.py")}]
        with support.Child(load, env={"REA_URL": server.url}, python_options=("-u", "-Wdefault")) as child:
            child.hello()
            for _ in range(2):
                done = child.run("async_tasks:enqueue_another")
                self.assertEqual(done["result"], server.requests[-1][2]["task_id"])
                self.assertNotIn("dirty", done)
            self.assertEqual(child.errors(), "")
        self.assertEqual(server.requests[-1][2]["root_id"], "0193793e-7f00-7000-8000-000000000002")


if __name__ == "__main__":
    unittest.main()
