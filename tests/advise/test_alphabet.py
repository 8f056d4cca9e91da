"""Which sequences a text can hold at all is known from its letters."""

from __future__ import annotations

import numpy as np
import pytest

from npuperf.advise.fused_operators import Alphabet

#: Steps: "a", then one of "b" and "c", then perhaps "d".
STEPS = ("a", "b|c", "d?")


@pytest.mark.parametrize(
    ("names", "possible"),
    [
        (("a", "b"), True),
        (("a", "c", "d"), True),
        (("c", "a"), True),  # the order is the expression's to tell
        (("a", "d"), False),
        (("b", "c", "d"), False),
        (("x",), False),
        ((), False),
    ],
)
def test_a_step_that_must_be_there_needs_one_of_its_letters(names: tuple[str, ...], possible: bool) -> None:
    alphabet = Alphabet(("a", "b", "c", "d"))
    letters = frozenset(alphabet.text(names, np.arange(len(names))))
    assert alphabet.possible(STEPS, letters) is possible
    if not possible:
        assert not alphabet.pattern(STEPS, ()).search("".join(sorted(letters)))
