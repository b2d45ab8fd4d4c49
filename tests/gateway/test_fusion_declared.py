"""Which name a program in Java or Scala runs by, and that no text of a model keeps the gateway busy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sandlot_gateway.fusion.declared import class_of, object_of


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import x;\npublic class StackTest {}", "StackTest"),
        ("public final class A {}\npublic class B {}", "A"),
        ("public  abstract\n strictfp class A<T> {}", "A"),
        ("public non-sealed class A$1 {}", "A$1"),
        ("class StackTest {}", "Main"),
        ("republic class A {}", "Main"),
        ("// public API of the class under test\npublic class A {}", "A"),
        ("// the public class of all\npublic class A {}", "A"),
        ("/* public class X\n * // */public class A {}", "A"),
        ('String s = "/* public class \\" X";\npublic class A {}', "A"),
        ("char c = '\"', d = '\\'', e = '\\u0022'; public class A {}", "A"),
        ('String s = """\n "public class X \\""" public class Y\n"""; public class A {}', "A"),
        ("/* public class A {}", "Main"),
        ("public class " + "A" * 250 + " {}", "A" * 250),
        ("public class " + "A" * 251 + " {}", "Main"),
        ("public class " + "Ä" * 126 + " {}", "Main"),
        ("", "Main"),
    ],
    ids=range(17),
)
def test_a_java_file_has_the_name_of_its_public_class(code: str, name: str) -> None:
    assert class_of(code) == name


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("object A extends App\nobject B", "A"),
        ("// an object of mine\nobject A", "A"),
        ("class subobject extends X; object A", "A"),
        ('val raw = """C:\\"""\nobject A', "A"),
        ("val c = '\"'; val s = 'sym; object A", "A"),
        ("println(1)", "Main"),
        ("object " + "a" * 300, "Main"),
    ],
    ids=range(7),
)
def test_a_scala_program_is_its_first_object(code: str, name: str) -> None:
    assert object_of(code) == name


# Each text made of these took time that grows with the square of its length in a pattern that goes back.
_REPEATED = (
    "public ", "# public final ", "public class ", "final ", "object ", "/*", "/* *", "//", '"', '""""', "\\\"", "'",
    "'\\u", "a", " ", "\n", "*/", '"\\', "public\n//", "non-sealed ",
)  # fmt: skip
_SCRIPT = """
import sys
from sandlot_gateway.fusion.declared import class_of, object_of
from sandlot_gateway.fusion.entries import has_too_many

for text in sys.argv[1:]:
    for begin in ("", "public ", '"'):
        whole = begin + text * (4_000_000 // len(text))
        assert class_of(whole) == object_of(whole) == "Main" or text in ("object ", "public class "), text
        has_too_many(whole.encode())
print("read")
"""


def test_no_text_keeps_a_pattern_busy() -> None:
    """In a process of its own, which ends here if it hangs: it takes a second, and went on for hours."""
    words = [sys.executable, "-c", _SCRIPT, *_REPEATED]
    done = subprocess.run(words, timeout=100, capture_output=True, text=True, check=False)
    assert done.stdout == "read\n", done.stderr
