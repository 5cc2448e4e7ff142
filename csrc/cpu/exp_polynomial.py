# SPDX-License-Identifier: Apache-2.0
"""Derives the coefficients of the polynomial in exp_log.h.

exp(r) on |r| <= ln(2)/2 is approximated by 1 + r + r^2 q(r) with q of degree 4, minimising the
largest relative error by the Remez exchange in float64 (errors are near 1e-9, far above float64's
rounding). Run ``python csrc/cpu/exp_polynomial.py``: it prints the coefficients rounded to float32
and the error that is left after that rounding.
"""

from __future__ import annotations

import math
import struct

DEGREE = 4
# A little wider than ln(2)/2: the rounded reduction may step over the edge.
HALF_WIDTH = math.log(2.0) / 2 * 1.0001
GRID = 20_001


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination with partial pivoting; the system has six unknowns."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for i in range(column + 1, size):
            factor = rows[i][column] / rows[column][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[column], strict=True)]
    answer = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * answer[j] for j in range(i + 1, size))
        answer[i] = (rows[i][size] - known) / rows[i][i]
    return answer


def relative_error(coefficients: list[float], r: float) -> float:
    """(1 + r + r^2 q(r) - exp(r)) / exp(r)."""
    q = 0.0
    for c in reversed(coefficients):
        q = q * r + c
    return (r + r * r * q - math.expm1(r)) / math.exp(r)


def remez() -> list[float]:
    """Coefficients of q, lowest power first."""
    points = DEGREE + 2
    grid = [HALF_WIDTH * math.cos(math.pi * i / (GRID - 1)) for i in range(GRID)]
    nodes = [HALF_WIDTH * math.cos(math.pi * (i + 0.5) / points) for i in range(points)]
    coefficients: list[float] = []
    for _ in range(30):
        matrix = []
        right = []
        for i, r in enumerate(nodes):
            weight = r * r / math.exp(r)
            matrix.append([weight * r**j for j in range(DEGREE + 1)] + [(-1.0) ** i])
            right.append((math.expm1(r) - r) / math.exp(r))
        coefficients = solve(matrix, right)[:-1]
        # The weight r^2 vanishes at 0, where the error does too: the alternation is that of the
        # largest error between two sign changes.
        errors = [(relative_error(coefficients, r), r) for r in grid]
        runs: list[tuple[float, float]] = []
        for error, r in errors:
            if runs and (error > 0) == (runs[-1][0] > 0):
                runs[-1] = max(runs[-1], (error, r), key=lambda pair: abs(pair[0]))
            else:
                runs.append((error, r))
        while len(runs) > points:
            runs.pop(0 if abs(runs[0][0]) < abs(runs[-1][0]) else -1)
        if len(runs) < points:
            break
        nodes = [r for _, r in runs]
    return coefficients


def float32(x: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


def main() -> None:
    """Prints the coefficients, lowest power (r^2) first, and the error that remains."""
    rounded = [float32(c) for c in remez()]
    for power, c in enumerate(rounded, start=2):
        print(f"r^{power}: {c.hex()}  {c:.9g}")
    worst = max(
        abs(relative_error(rounded, HALF_WIDTH * (2 * i / (GRID - 1) - 1))) for i in range(GRID)
    )
    print(f"largest relative error: {worst:.3g} = 2^{math.log2(worst):.2f}")


if __name__ == "__main__":
    main()
