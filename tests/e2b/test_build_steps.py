"""What steps of a template's build mean: values with variables, and sources of COPY."""

from __future__ import annotations

import subprocess

import pytest
from sandlot_gateway.e2b.builds.expansion import printing
from sandlot_gateway.e2b.builds.names import named
from sandlot_gateway.e2b.builds.steps import Step, copy_of


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("$A/bin:${B}", "one/bin:two words"),
        ("${C:-else}$A", "elseone"),
        (r"\$A is $A", "$A is one"),
        (r'a\b "c" \" $A', r'a\b "c" \" one'),
        ("$(echo ran) `echo ran` $A", "$(echo ran) `echo ran` one"),
        ("$((1+1)) $A", "$((1+1)) one"),
        ("$A\n'; echo ran; '", "one\n'; echo ran; '"),
    ],
)
def test_variables_are_replaced_and_nothing_else_runs(value: str, printed: str) -> None:
    env = {"A": "one", "B": "two words"}
    done = subprocess.run(
        ["/bin/sh", "-c", printing(value)], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == printed


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("a/b.txt", "a/b.txt"),
        ("./a/", "a"),
        (".", "."),
        ("*.py", "."),
        ("a/**/x", "a"),
        ("a/b?/c", "a"),
        ("..a", "..a"),
    ],
)
def test_a_pattern_copies_the_directory_that_it_begins_with(source: str, path: str) -> None:
    assert copy_of(Step("COPY", [source, "/to"])).source == path


@pytest.mark.parametrize("source", ["/a", "..", "../a", "a/../../b"])
def test_a_source_outside_of_the_context_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="source"):
        copy_of(Step("COPY", [source, "/to"]))


@pytest.mark.parametrize("text", ["", "a/b", "cp-1", ":v1", "a:", "a:b:c", "a\n", "-a", "a" * 64])
def test_what_can_be_no_name_is_none(text: str) -> None:
    assert named(text) is None
