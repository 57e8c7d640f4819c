# What type checkers and old Pythons make of the package.
import ast
import re
import subprocess
import sys
import unittest

import support


class Types(unittest.TestCase):
    def setUp(self):
        try:
            import mypy  # noqa: F401
        except ImportError:
            self.skipTest("mypy is not installed here; `cargo xtask test` installs it")

    def mypy(self, *paths):
        command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
        command += ["--cache-dir", "target/mypy-cache", *paths]
        env = {**support.os.environ, "MYPYPATH": str(support.PACKAGE)}
        done = subprocess.run(command, cwd=support.REPO, env=env, capture_output=True, text=True)
        return done.stdout + done.stderr

    def test_the_package_is_strictly_typed(self):
        self.assertIn("Success: no issues", self.mypy("python/rea"))

    def test_users_see_the_types_they_should(self):
        path = support.HERE / "typed_user_code.py"
        said = self.mypy(str(path.relative_to(support.REPO)))
        found = {}
        for number, kind, text in re.findall(r"typed_user_code\.py:(\d+): (error|note): (.*)", said):
            found.setdefault(int(number), []).append((kind, text))
        expected = 0
        for number, line in enumerate(path.read_text().splitlines(), 1):
            told = found.pop(number, [])
            _, revealed, kind = line.partition("  # R: ")
            _, wrong, part = line.partition("  # E: ")
            with self.subTest(line=number, code=line.strip()):
                if revealed:
                    types = [re.sub(r'.*"(.*)".*', r"\1", text) for what, text in told if what == "note"]
                    types = [
                        each.replace("builtins.", "").replace("float | None", "Union[float, None]")
                        for each in types
                    ]
                    self.assertEqual(types, [kind])
                elif wrong:
                    errors = [text for what, text in told if what == "error"]
                    self.assertTrue(len(errors) == 1 and part in errors[0], told)
                else:
                    self.assertEqual([text for what, text in told if what == "error"], [])
            expected += bool(revealed or wrong)
        self.assertGreater(expected, 30, said)

    def test_the_package_says_that_it_is_typed(self):
        self.assertTrue((support.PACKAGE / "rea" / "py.typed").exists())


class Old(unittest.TestCase):
    """What a newer Python cannot show by running: that 3.9 reads and finds everything."""

    # Names of the standard library that came after 3.9, in modules that rea uses.
    NEWER = {
        "asyncio": {"Runner", "TaskGroup", "timeout", "timeout_at", "Barrier", "eager_task_factory"},
        "contextlib": {"aclosing", "chdir"},
        "itertools": {"pairwise", "batched"},
        "types": {"NoneType", "EllipsisType", "UnionType"},
        "inspect": {"markcoroutinefunction"},
    }

    def trees(self):
        files = sorted((support.PACKAGE / "rea").glob("*.py"))
        self.assertGreater(len(files), 15)
        for path in files:
            with self.subTest(path.name):
                yield ast.parse(path.read_text(), path.name, feature_version=(3, 9))

    def test_the_syntax_is_that_of_python_3_9(self):
        for tree in self.trees():
            first = [node for node in tree.body if isinstance(node, ast.ImportFrom)][:1]
            uses_annotations = any(isinstance(node, (ast.arg, ast.AnnAssign)) for node in ast.walk(tree))
            if uses_annotations and tree.body:
                self.assertEqual([node.module for node in first], ["__future__"], "annotations stay text")

    def test_no_newer_names_are_used(self):
        for tree in self.trees():
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    self.assertNotIn(node.attr, self.NEWER.get(node.value.id, ()))
                if isinstance(node, ast.ImportFrom):
                    names = {each.name for each in node.names}
                    self.assertFalse(names & self.NEWER.get(node.module or "", set()))
                self.assertNotEqual(type(node).__name__, "Match")


if __name__ == "__main__":
    unittest.main()
