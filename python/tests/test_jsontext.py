# What counts as JSON, and what is said about the rest.
import datetime
import decimal
import json
import unittest

import support  # noqa: F401  (puts the package on the path)
from rea._jsontext import NotJson, clean, to_bytes


class Bad:
    pass


class Strict(unittest.TestCase):
    def test_good_values_come_back_equal(self):
        for value in (None, True, 1.5, 2**80, "中文 \0 🎉", [], {"a": [{"b": None}]}, [[]] * 1000):
            with self.subTest(value):
                self.assertEqual(json.loads(to_bytes(value, "result")), value)

    def test_bad_values_are_named_with_their_place(self):
        loop = []
        loop += [loop, loop]
        cases = [
            (float("nan"), "NaN"),
            ({"a": [1, float("-inf")]}, "result is not JSON: ['a'][1] is -inf"),
            ("\ud800", "result is not valid Unicode"),
            ({"\udfff": 1}, "result is not valid Unicode: a key of it"),
            ({"when": datetime.datetime(2026, 1, 1)}, "isoformat"),
            ([b"x"], "result is not JSON: [0] is of type bytes"),
            ({1, 2}, "list(value)"),
            (decimal.Decimal(1), "str(value)"),
            ({(1, 2): 3}, "keys must be text"),
            (Bad(), "Bad"),
            (loop, "holds itself"),
        ]
        for value, part in cases:
            with self.subTest(part), self.assertRaises(NotJson) as caught:
                to_bytes(value, "result")
            self.assertIn(part, str(caught.exception))

    def test_depth_64_is_the_limit(self):
        def nested(depth):
            value = []
            for _ in range(depth - 1):
                value = [value]
            return value

        self.assertEqual(to_bytes(nested(64), "result"), b"[" * 64 + b"]" * 64)
        for depth in (65, 500, 100_000):
            with self.subTest(depth), self.assertRaises(NotJson):
                to_bytes(nested(depth), "result")

    def test_clean_replaces_only_what_is_not_unicode(self):
        self.assertEqual(clean("a中🎉\0"), "a中🎉\0")
        self.assertEqual(clean("x\ud800y\udc00"), "x\ufffdy\ufffd")


if __name__ == "__main__":
    unittest.main()
