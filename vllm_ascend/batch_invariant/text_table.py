# SPDX-License-Identifier: Apache-2.0
"""Tables as plain text: no colour, no box drawing, the same in a terminal and in a log."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, two spaces apart; numbers are set to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    for row in cells:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under a header of {len(header)}")
    columns = list(zip(header, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(header))
    ]

    def line(row: Sequence[str]) -> str:
        set_out = (
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(set_out).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])
