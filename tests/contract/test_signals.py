"""Names and numbers of signals, as images and requests write them."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_contract.signals import signal_number

RTMIN, RTMAX = 34, 64
PLAIN = [one for one in signal.Signals if one.name not in ("SIGRTMIN", "SIGRTMAX")]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SIGTERM", 15),
        ("term", 15),
        ("sigquit", 3),
        (" SIGINT ", 2),
        ("3", 3),
        (9, 9),
        ("SIGRTMIN", RTMIN),
        ("RTMIN+3", 37),
        ("SIGRTMIN+3", 37),
        ("SIGRTMAX-2", 62),
        ("SIGRTMAX", RTMAX),
    ],
)
def test_a_signal_by_name_or_number(text: str | int, number: int) -> None:
    assert signal_number(text) == number


@pytest.mark.parametrize(
    "value", ["", "SIG", "SIGNOPE", "SIG15", "SIG_DFL", "ITIMER_REAL", "1.5", "１５", "9" * 5000]
)
@pytest.mark.parametrize("lower", [False, True])
def test_a_text_that_is_no_signal_is_said_with_examples(value: str, lower: bool) -> None:
    with pytest.raises(ValueError, match="SIGTERM, 15 or SIGRTMIN"):
        signal_number(value.lower() if lower else value)


OUT_OF_RANGE = ["0", "-9", "65", "SIGRTMIN-1", "SIGRTMAX+1", "RTMIN+31", "RTMAX-31", "RTMIN+", "RTMIN+-1"]


@pytest.mark.parametrize("value", [*OUT_OF_RANGE, 0, -9, 65, 1.5, True, None, []])
def test_a_number_out_of_range_is_no_signal(value: object) -> None:
    with pytest.raises(ValueError, match="SIGTERM, 15 or SIGRTMIN"):
        signal_number(value)


@given(st.sampled_from(PLAIN), st.booleans(), st.booleans())
def test_every_name_of_this_kernel_in_any_spelling(one: signal.Signals, short: bool, lower: bool) -> None:
    name = one.name.removeprefix("SIG") if short else one.name
    assert signal_number(name.lower() if lower else name) == one


@given(st.integers(RTMIN, RTMAX))
def test_real_time_signals_counted_from_both_ends(number: int) -> None:
    assert signal_number(f"SIGRTMIN+{number - RTMIN}") == number
    assert signal_number(f"SIGRTMAX-{RTMAX - number}") == number


@given(st.one_of(st.text(), st.integers(), st.from_regex(r"(SIG)?RTM(IN|AX)[+-]?[0-9]*", fullmatch=True)))
def test_any_other_value_is_a_number_in_range_or_an_error(value: str | int) -> None:
    try:
        number = signal_number(value)
    except ValueError:
        return
    assert 1 <= number <= RTMAX
