"""Finds the names that Java's and Scala's code declares, in bounded time: the code is a model's, read on the event loop."""

from __future__ import annotations

import re

_MOST_READ = 1 << 18  # characters
_MOST_NAME = 250  # bytes: a file's name has at most 255, with `.java`
_DEFAULT = "Main"


def _first(declared: str, *, name: str, block: str) -> re.Pattern[str]:
    """Return the pattern of the first declaration that is neither in a comment nor in a string.

    It goes over no text twice, whatever the code is: all repetitions are possessive, and only a word that begins the
    declaration is read ahead. `block`: all but the quotes of a string between three.
    """
    skipped = (
        r"//[^\n]*+",
        r"/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+",
        rf'"""(?:{block}|"(?!""))*+(?:""")?+',
        r'"(?:[^"\\\n]++|\\.)*+"?+',
        r"'(?:[^'\\\n]|\\[^\n][^'\n]{0,5}+)'",
        rf"(?!{declared}{name})\w++",
        r"[^\w/\"']++",
        r"[/\"']",
    )
    return re.compile(rf"(?:{'|'.join(skipped)})*+{declared}({name}++)", re.DOTALL)


_JAVA_CLASS = _first(
    r"public\s++(?:(?:abstract|final|static|strictfp|sealed|non-sealed)\s++)*+class\s++",
    name=r"[\w$]",
    block=r'[^"\\]++|\\.',
)
_SCALA_OBJECT = _first(r"object\s++", name=r"\w", block=r'[^"]++')


def class_of(code: str) -> str:
    """Return the name of the first public class of Java code, after which its file is named; else `Main`."""
    return _name(_JAVA_CLASS, code)


def object_of(code: str) -> str:
    """Return the name of the first object of Scala code, which is what runs; else `Main`."""
    return _name(_SCALA_OBJECT, code)


def _name(pattern: re.Pattern[str], code: str) -> str:
    found = pattern.match(code, 0, _MOST_READ)
    return found[1] if found is not None and len(found[1].encode()) <= _MOST_NAME else _DEFAULT
