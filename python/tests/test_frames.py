# The samples of the child protocol, from the Python side: every "<" line can be made, every ">" line taken.
import json
import re
import struct
import unittest

import support
from rea import _frames
from rea.task import Task

SAMPLES = (support.REPO / "protocol" / "samples" / "frames.txt").read_text("utf-8").splitlines()


def sample_lines(direction):
    return [line[2:] for line in SAMPLES if line.startswith(direction + " ")]


def body(frame):
    (length,) = struct.unpack(">I", frame[:4])
    assert length == len(frame) - 4
    return frame[4:].decode("utf-8")


def make_task(name, doc, **defaults):
    def function():
        pass

    function.__doc__ = doc
    return Task(function, name, (), defaults)


def made(line):
    """The same frame as `line`, made by the functions that the worker uses."""
    frame = json.loads(line)
    kind = frame.pop("t")
    if kind == "hello":
        tasks = [make_task(task.pop("name"), task.pop("doc", None), **task) for task in frame["tasks"]]
        return _frames.hello(frame["pid"], frame["lang"], tasks, frame["ahead"], frame["files"])
    if kind == "bad":
        return _frames.bad(frame["type"], frame["message"], frame["traceback"], frame["files"])
    if kind == "progress":
        return _frames.progress(frame["token"], frame["done"], frame["total"], frame["note"])
    left = tuple(frame.pop(name, False) for name in ("dirty", "spawned"))
    if frame["ok"]:
        result = _frames.encode(frame["result"]).encode("utf-8")
        return _frames.done_ok(frame["token"], result, left)
    frame.pop("ok")
    return _frames.done_failed(kind=frame.pop("type"), **frame, left=left)


class Samples(unittest.TestCase):
    def test_there_are_samples_of_every_kind(self):
        kinds = {json.loads(line)["t"] for line in sample_lines("<")}
        self.assertEqual(kinds, {"hello", "bad", "progress", "done"})
        self.assertTrue(sample_lines(">"))

    def test_a_limit_of_memory_is_among_them(self):
        limits = [t.get("memory_bytes") for t in json.loads(sample_lines("<")[0])["tasks"]]
        self.assertEqual(limits, [None, 512 << 20])

    def test_every_line_to_the_server_is_made_exactly(self):
        for line in sample_lines("<"):
            with self.subTest(line):
                self.assertEqual(body(made(line)), line)

    def test_every_line_from_the_server_is_taken(self):
        for line in sample_lines(">"):
            with self.subTest(line):
                self.assertEqual(_frames.parse(line.encode("utf-8")), json.loads(line))


class Description(unittest.TestCase):
    def test_all_that_a_task_can_say_is_described(self):
        page = (support.REPO / "protocol" / "child-protocol.md").read_text("utf-8")
        (row,) = [line for line in page.splitlines() if line.startswith("| `hello` |")]
        code = (support.PACKAGE / "rea" / "task.py").read_text("utf-8")
        names = set(re.findall(r'defaults\["(\w+)"\] = ', code))
        self.assertIn("timeout_ms", names)
        self.assertEqual([name for name in sorted(names) if f"`{name}`" not in row], [])


class Frames(unittest.TestCase):
    def test_leftovers_stand_at_the_end(self):
        frame = body(_frames.done_ok("t", b"[1]", (True, True)))
        self.assertEqual(frame, '{"t":"done","token":"t","ok":true,"result":[1],"dirty":true,"spawned":true}')

    def test_text_that_is_not_unicode_is_replaced_in_notes(self):
        self.assertEqual(json.loads(body(_frames.progress("t", 1, None, "a\ud800b")))["note"], "a\ufffdb")

    def test_what_is_no_frame_is_refused(self):
        for data in (b"", b"[]", b"{}", b'{"t":1} x', b"\xff", b'{"t":"run"', b"[" * 100_000):
            with self.subTest(data[:20]), self.assertRaises(_frames.ProtocolError):
                _frames.parse(data)


if __name__ == "__main__":
    unittest.main()
