# The decorator: what it takes, what it refuses, what a task still is afterwards.
import functools
import inspect
import pickle
import subprocess
import sys
import unittest
from datetime import timedelta

import support
from rea import RetryableError, Task, _options, _signature, current_job, task
from rea import task as _task_function
from rea.task import registry

WORDS = (support.REPO / "protocol" / "samples" / "words.txt").read_text("utf-8").splitlines()


@task
def plain(a, b=2, *, c=3):
    """Adds."""
    return a + b + c


@task(max_attempts=5, default_priority=3, queue="mail", timeout=1.5, retry_on=(OSError, KeyError))
def full(user_id, trace_id=None):
    return trace_id


def passing_on(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return func(*args, **kwargs)

    return wrapper


def not_passing_on(func):
    @functools.wraps(func)
    def wrapper(*args):
        return func(*args)

    return wrapper


@task
@passing_on
def wrapped(a, trace_id=None):
    pass


@task
@not_passing_on
def wrapped_narrowly(a, trace_id=None):
    pass


async def async_generator_function():
    yield 1


def generator_function():
    yield 1


def make_nested():
    def inner():
        pass

    return inner


class Holder:
    def method(self):
        pass


def other(account=None):
    pass


class Decorated(unittest.TestCase):
    def test_it_can_still_be_called_and_looks_the_same(self):
        self.assertEqual(plain(1, c=1), 4)
        self.assertIsInstance(plain, Task)
        self.assertEqual((plain.__name__, plain.__doc__), ("plain", "Adds."))
        self.assertEqual(str(inspect.signature(plain)), "(a, b=2, *, c=3)")
        self.assertIs(pickle.loads(pickle.dumps(plain)), plain)

    def test_the_name_is_module_and_function(self):
        self.assertEqual(plain.name, f"{__name__}:plain" if __name__ != "__main__" else "test_task:plain")
        self.assertIs(registry[plain.name], plain)

    def test_a_script_names_its_tasks_as_the_worker_does(self):
        """`python jobs.py` runs as __main__; the worker imports the same file as `jobs`."""
        code = "from rea.task import task\n@task\ndef f(): pass\nprint(f.name)"
        with support.contextlib.ExitStack() as stack:
            folder = stack.enter_context(__import__("tempfile").TemporaryDirectory())
            path = support.Path(folder) / "jobs.py"
            path.write_text(code)
            env = {**support.os.environ, "PYTHONPATH": str(support.PACKAGE)}
            for command in ([str(path)], ["-m", "jobs"]):
                run = [sys.executable, *command]
                out = subprocess.run(run, env=env, cwd=folder, capture_output=True, text=True)
                self.assertEqual(out.stdout, "jobs:f\n", out.stderr)

    def test_defaults_are_sent_only_when_given(self):
        self.assertEqual(plain.defaults, {})
        self.assertEqual(
            full.defaults, {"queue": "mail", "priority": 3, "max_attempts": 5, "timeout_ms": 1500}
        )
        self.assertEqual(full.retry_on, (OSError, KeyError))
        self.assertEqual(task(timeout=None, priority=1)(other).defaults, {"priority": 1, "timeout_ms": None})
        limits = {"concurrency": 2, "rate": "3/15min", "concurrency_key": "all"}
        self.assertEqual(task(**limits)(other).defaults, limits)

    def test_a_schedule_is_declared_with_the_task(self):
        def declared(**options):
            def nightly(trace_id, day="today", *, lang="en"):
                return day

            nightly.__qualname__ = "nightly"
            registry.pop("test_task:nightly", None)
            return task(**options)(nightly).defaults.get("schedule")

        cron = {"cron": "0 2 * * *", "timezone": "Asia/Shanghai", "catch_up": "none", "overlap": "cancel_old"}
        options = {"schedule": "0 2 * * *", "timezone": "Asia/Shanghai", "catch_up": "none", "overlap": "cancel_old"}
        self.assertEqual(declared(**options), cron)
        self.assertEqual(declared(every=timedelta(minutes=1.5)), {"every_ms": 90_000})
        self.assertIsNone(declared(max_attempts=2))
        for wrong, said in [
            ({"schedule": "@daily", "every": 5}, "not both"),
            ({"timezone": "UTC"}, "goes with schedule"),
            ({"every": 5, "timezone": "UTC"}, "same in every zone"),
            ({"every": 0.5}, "1 second to 366 days"),
            ({"schedule": "daily"}, "such as '0 2"),
            ({"schedule": "@daily", "catch_up": "some"}, "'latest', 'all', 'none'"),
            ({"schedule": "@daily", "overlap": "x"}, "'skip'"),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, said):
                declared(**wrong)

    def test_what_runs_by_the_clock_needs_no_arguments(self):
        def report(day, *, lang):
            return day

        report.__qualname__ = "report"
        with self.assertRaisesRegex(TypeError, "report runs by the clock.* needs day, lang"):
            task(every=5)(report)

    def test_trace_id_is_found_where_the_function_takes_it(self):
        self.assertIsNone(plain.trace_slot)
        self.assertEqual(full.trace_slot, 1)
        self.assertEqual(wrapped.trace_slot, 1)
        self.assertIsNone(wrapped_narrowly.trace_slot)

    def test_current_job_outside_a_job_says_so(self):
        with self.assertRaisesRegex(RuntimeError, "called directly"):
            current_job()


class Refused(unittest.TestCase):
    def test_functions_that_cannot_be_tasks(self):
        cases = [
            (async_generator_function, "generator"),
            (generator_function, "generator"),
            (make_nested(), "nested"),
            (lambda: None, "lambda"),
            (Holder.method, "method"),
            (Holder, "goes on a function"),
            (functools.partial(other), "goes on a function"),
            (5, "goes on a function"),
            (plain, "twice"),
        ]
        for func, part in cases:
            with self.subTest(part), self.assertRaisesRegex(TypeError, part):
                _task_function(func)

    def test_bad_values_say_what_is_right(self):
        cases = [
            ({"max_attempts": 0}, "from 1 to"),
            ({"max_attempts": True}, "from 1 to"),
            ({"max_attempts": 2**31}, "from 1 to"),
            ({"default_priority": 11}, "most urgent"),
            ({"priority": 0}, "most urgent"),
            ({"priority": 1, "default_priority": 2}, "give one"),
            ({"timeout": 0}, "None means no limit"),
            ({"timeout": float("nan")}, "number of seconds"),
            ({"timeout": "60"}, "number of seconds"),
            ({"retry_base": -1}, "number of seconds"),
            ({"retry_cap": float("inf")}, "number of seconds"),
            ({"on_crash": "ignore"}, "'retry', 'hold'"),
            ({"queue": ""}, "printable text"),
            ({"queue": "x" * 201}, "200"),
            ({"name": "a\nb"}, "printable"),
            ({"retry_on": "OSError"}, "exception classes"),
            ({"retry_on": (KeyboardInterrupt,)}, "exception classes"),
            ({"max_interruptions": -1}, "from 0"),
            ({"concurrency": 0}, "from 1 to"),
            ({"concurrency": 1_000_001}, "from 1 to"),
            ({"rate": "10"}, "10/min"),
            ({"rate": 10}, "10/min"),
            ({"rate": "0/min"}, "10/min"),
            ({"concurrency_key": ""}, "printable text"),
            ({"concurrency_key": "acc:{0"}, r"'acc:\{0': an argument is \{0\} or \{name\}, and a brace is"),
        ]
        for options, part in cases:
            with self.subTest(options), self.assertRaisesRegex(ValueError, part):
                task(**options)(other)

    def test_places_of_a_concurrency_key_are_read_as_the_server_reads_them(self):
        for line in WORDS:
            word, expected = line.split("\t")
            with self.subTest(word):
                if expected == "!":
                    with self.assertRaises(ValueError):
                        _options.places("concurrency_key", word)
                else:
                    found = _options.places("concurrency_key", word)
                    told = ["|".join(map(str, sources)) for sources in found]
                    self.assertEqual(" ".join(["=", *told]), expected)
                    parts = expected.replace("|", " ").split()
                    numbers = [part for part in parts if part.isdigit() and len(part) < 20]
                    flat = [place for sources in found for place in sources]
                    self.assertEqual([str(place) for place in flat if isinstance(place, int)], numbers)

    def test_a_concurrency_key_takes_arguments_that_the_function_has(self):
        def sync(account, other=1, *, region="eu"):
            pass

        def first(account, /, *rest):
            pass

        def named(**options):
            pass

        for func in (sync, first, named):
            func.__qualname__ = func.__name__

        @functools.wraps(sync)
        def wrapper(*args, **kwargs):
            return sync(*args, **kwargs)

        for func, key in [
            (sync, "{account}-{other}-{region}"),
            (sync, "{0}-{1}"),
            (sync, "{{acount}}"),
            (first, "{0}-{7}"),
            (named, "{anything}"),
            (wrapper, "{account}"),
            (print, "{anything}"),
        ]:
            with self.subTest(key):
                _signature.refuse_places_without_argument(func, key, _options.places("concurrency_key", key))
        for func, key, said in [
            (sync, "acc:{acount}", r"sync has no argument \{acount\}; it takes account, other, region"),
            (sync, "{2}", r"sync has no argument \{2\}; it takes 2 by place, counted from 0"),
            (first, "{account}", r"first has no argument \{account\}; it takes none by name"),
            (named, "{0}", r"named has no argument \{0\}; it takes none by place"),
            (wrapper, "{acount}", "it takes account, other, region"),
        ]:
            with self.subTest(key), self.assertRaisesRegex(ValueError, said):
                task(concurrency_key=key)(func)

    def test_a_concurrency_key_is_the_same_however_its_argument_is_passed(self):
        def charge(account, other=1, *rest, region="eu", **more):
            pass

        def first(account, /, other):
            pass

        @functools.wraps(first)
        def wrapper(*args, **kwargs):
            return first(None, *args, **kwargs)

        for func in (charge, first, wrapper):
            func.__qualname__ = func.__name__
        for func, key, sent in [
            (charge, "{account}-{1}", "{0|account}-{1|other}"),
            (charge, "a{{b}}{region}{2}{x}", "a{{b}}{region}{2}{x}"),
            (charge, "{account|0}{other|region}", "{account|0}{other|region}"),
            (charge, "all", "all"),
            (first, "{0}{1}{other}", "{0}{1|other}{1|other}"),
            (wrapper, "{other}", "{other}"),
        ]:
            with self.subTest(key):
                made = task(concurrency_key=key, name=f"either way {key}")(func)
                self.assertEqual(made.defaults["concurrency_key"], sent)

    def test_two_tasks_with_one_name(self):
        task(name="taken")(other)
        task(name="taken")(other)  # a reload of the module
        with self.assertRaisesRegex(ValueError, "two tasks are called 'taken'"):
            task(name="taken")(make_function_elsewhere())


def make_function_elsewhere():
    namespace = {"__name__": "elsewhere"}
    exec("def f(): pass", namespace)
    return namespace["f"]


class Light(unittest.TestCase):
    def test_importing_rea_does_not_import_http(self):
        heavy = "asyncio http.client ssl typing inspect dataclasses traceback socket threading uuid datetime"
        code = f"""if True:
            import sys
            old = set(sys.modules)
            import rea, rea.worker
            print(set({heavy.split()}) & (set(sys.modules) - old))
        """
        env = {**support.os.environ, "PYTHONPATH": str(support.PACKAGE)}
        out = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True)
        self.assertEqual(out.stdout.strip(), "set()", out.stderr)

    def test_the_public_names_exist(self):
        import rea

        for name in rea.__all__:
            self.assertTrue(hasattr(rea, name), name)
        self.assertFalse(hasattr(rea, "nonsense"))
        self.assertTrue(issubclass(RetryableError, Exception))

    def test_the_version_is_that_of_the_program(self):
        import rea

        self.assertIn(f'\nversion = "{rea.__version__}"\n', (support.REPO / "Cargo.toml").read_text())


if __name__ == "__main__":
    unittest.main()
