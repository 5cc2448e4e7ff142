# SPDX-License-Identifier: Apache-2.0
"""The polynomial in exp_log.h is what its script derives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from csrc.cpu import exp_polynomial

HEADER = Path(__file__).resolve().parents[2] / "csrc/cpu/exp_log.h"


def test_the_coefficients_are_the_scripts_and_so_is_their_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = HEADER.read_text()
    body = text[text.index("Vec q = ") : text.index("const Vec p = ")]
    written = [float.fromhex(each) for each in re.findall(r"set1\(([-+x.\da-fp]+)f\)", body)]
    exp_polynomial.main()
    *coefficients, error = capsys.readouterr().out.splitlines()
    derived = [float.fromhex(line.split()[1]) for line in coefficients]
    assert len(derived) == exp_polynomial.DEGREE + 1 and written == derived[::-1]
    # The control: neighbours in float32 are other numbers.
    assert written != [value * (1 + 2**-23) for value in written]
    claimed = re.search(r"relative error below 2\^(-\d+\.\d+)", text)
    assert claimed and float(error.rsplit("2^", 1)[1]) < float(claimed[1])
