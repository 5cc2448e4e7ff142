# SPDX-License-Identifier: Apache-2.0
"""Draws a check: which prompts differ in which runs, beside the control, and how full steps were.

For each model and dtype a strip for every engine, the control's last: a column is a prompt, a row
a run that was compared, a cell takes the worst of what was compared there. Right of the strips is
how many sequences shared each step. Colours grow darker with the finding, so they can be told apart
in grey and by the colour-blind.

matplotlib is imported where something is drawn and nowhere else; it is optional.
"""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..atomic_file import check_writable, write_atomically
from .comparison import Comparison
from .configuration import ConfigurationError
from .verdict import EXIT_NAMES, Control, Row, Verdict, threads_phrase

FORMATS = (".png", ".svg", ".pdf")

NOT_COMPARED, SAME, BITS, TOKEN = range(4)
# Name, colour.
STATES = (
    ("not compared", "#fafafa"),
    ("identical", "#c9dcec"),
    ("a logprob's bits differ", "#e69f00"),
    ("another token", "#5d1049"),
)
# Lines of the occupancy, by Okabe and Ito; each with a dash pattern and a marker of its own.
LINES = (
    ("#0072b2", "-", "o"),
    ("#d55e00", "--", "s"),
    ("#009e73", "-.", "^"),
    ("#000000", ":", "D"),
    ("#cc79a7", "-", "v"),
)
# More prompts share a cell, which then shows the worst of them: one in a thousand stays visible.
MOST_CELLS = 128

# Inches.
WIDTH, ROW, STRIP, CASE, REST = 12.0, 0.23, 0.55, 0.6, 0.9


def check_can_draw(path: Path) -> None:
    """Raises ConfigurationError or OSError, before hours of work, where `draw` would have to."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigurationError(
            f"--plot {path}: expected a name that ends in {', '.join(FORMATS)}"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigurationError(
            "--plot needs matplotlib, which is not installed: "
            f"pip --python {shlex.quote(sys.executable)} install matplotlib "
            "(in the source tree: --no-deps --require-hashes -r locks/plot.txt in its place)"
        )
    try:
        check_writable(path)
    except OSError as error:
        raise ConfigurationError(f"--plot {error}") from error


@dataclass(frozen=True)
class Strip:
    """One engine's comparisons."""

    title: str
    comparisons: tuple[Comparison, ...]

    def cells(self, prompts: int) -> list[list[int]]:
        """A row of states for each comparison, a column for each prompt."""
        rows = []
        for comparison in self.comparisons:
            row = [NOT_COMPARED] * prompts
            for name in comparison.names:
                row[prompt_of(name)] = max(row[prompt_of(name)], SAME)
            for difference in comparison.differences:
                state = TOKEN if difference.kind == "token" else BITS
                row[prompt_of(difference.request)] = max(row[prompt_of(difference.request)], state)
            rows.append(row)
        return rows


def prompt_of(name: str) -> int:
    """The prompt's number in the name of what was compared: "seeded3, output 2" → 3."""
    found = re.match(r"[a-z]+(\d+)", name)
    if found is None:
        raise ValueError(f"{name!r} is no name of a request")
    return int(found[1])


def together(row: Sequence[int], size: int) -> list[int]:
    """Cells of `size` prompts each, with the worst of them."""
    return [max(row[start : start + size]) for start in range(0, len(row), size)]


def title(verdict: Verdict) -> str:
    """The answer in one line."""
    differ = verdict.compared - verdict.identical
    found = f"{differ} of" if differ else "all"
    said = "differ" if differ else "identical"
    controls = sum(control.differs for control in verdict.controls)
    return (
        f"check: {EXIT_NAMES[verdict.exit_code]}: {found} {verdict.compared} comparisons {said}, "
        f"{controls} of {len(verdict.controls)} controls differ"
    )


def _strips(rows: Sequence[Row], control: Control | None) -> Iterator[Strip]:
    for row in rows:
        configuration = row.result.configuration
        yield Strip(
            f"{configuration.subject}, {threads_phrase(configuration.threads)}", row.comparisons
        )
    if control is None:
        return
    tries = [control.used] if control.used else control.tries
    for tried in tries:
        if tried.error is None:
            yield Strip(
                f"control: {tried.subject}, {threads_phrase(tried.threads)}", tried.comparisons
            )


def occupancy(row: Row) -> dict[int, list[float]]:
    """Batch size → for each step of a batch, sequences in it, averaged over the batches."""
    found = {}
    for size, batches in row.result.steps.items():
        if size > 1:
            longest = max(map(len, batches))
            found[size] = [
                sum(steps[i].requests for steps in batches if i < len(steps)) / len(batches)
                for i in range(longest)
            ]
    return found


def _draw_strip(axes: Any, strip: Strip, prompts: int, size: int) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    cells = [together(row, size) for row in strip.cells(prompts)]
    axes.pcolormesh(
        cells,
        cmap=ListedColormap([colour for _, colour in STATES]),
        vmin=-0.5,
        vmax=len(STATES) - 0.5,
        edgecolors="white",
        linewidth=0.8 if len(cells[0]) <= 64 else 0.2,
    )
    axes.invert_yaxis()
    middles = [index + 0.5 for index in range(len(cells))]
    # "batch of 8, 1 thread": the strip's title has the threads.
    names = [re.sub(r", \d+ threads?$", "", c.where) for c in strip.comparisons]
    axes.set_yticks(middles, names)
    counts = axes.secondary_yaxis("right")
    differing = [f"{len(c.differences)} of {c.compared}" for c in strip.comparisons]
    counts.set_yticks(middles, differing)
    for side in (axes, counts):
        side.tick_params(length=0, labelsize=8)
        for spine in side.spines.values():
            spine.set_visible(False)
    axes.set_title(strip.title, loc="left", fontsize=9, fontweight="bold")
    axes.set_title("differ", loc="right", fontsize=8, x=1.06)
    round_numbers = MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]).tick_values(0, prompts - 1)
    numbers = sorted({int(number) for number in round_numbers if 0 <= number < prompts})
    axes.set_xticks([number // size + 0.5 for number in numbers], [str(n) for n in numbers])


def _draw_occupancy(axes: Any, row: Row) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    lines = occupancy(row)
    for (size, sequences), (colour, dashes, marker) in zip(
        lines.items(), LINES * len(lines), strict=False
    ):
        axes.plot(
            range(1, len(sequences) + 1),
            sequences,
            color=colour,
            linestyle=dashes,
            marker=marker,
            markersize=3.5,
            label=str(size),
        )
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(left=0)
    configuration = row.result.configuration
    whose = f"{configuration.subject}, {threads_phrase(configuration.threads)}"
    axes.set_title(f"step occupancy: {whose}", loc="left", fontsize=9, fontweight="bold")
    axes.set_xlabel("step of a batch (number)", fontsize=9)
    axes.set_ylabel("sequences in the step (mean)", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if lines:
        axes.legend(
            title="batch size\n(requests)",
            fontsize=8,
            title_fontsize=8,
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )


def _versions(verdict: Verdict) -> str:
    result = verdict.rows[0].result
    parts = [f"{name} {version}" for name, version in result.versions.items() if version]
    if result.operators is not None:
        parts.append(f"isa {result.operators['isa']}")
    return ", ".join(parts)


def picture(verdict: Verdict) -> Any:
    """The figure, of matplotlib's type."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Patch

    controls = {(c.model, c.dtype): c for c in verdict.controls}
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in verdict.rows:
        configuration = row.result.configuration
        cases.setdefault((configuration.model, configuration.dtype), []).append(row)
    strips = {case: list(_strips(rows, controls.get(case))) for case, rows in cases.items()}
    heights = [
        CASE + sum(STRIP + ROW * len(strip.comparisons) for strip in strips[case]) for case in cases
    ]
    layout = ConstrainedLayoutEngine(hspace=0.04, h_pad=0.06)
    figure = Figure(figsize=(WIDTH, REST + sum(heights)), layout=layout)
    figure.suptitle(title(verdict), fontsize=13, fontweight="bold")
    parts = figure.subfigures(len(cases), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (case, rows) in zip(parts, cases.items(), strict=True):
        model, dtype = case
        part.suptitle(f"{Path(model).name}, {dtype}", fontsize=11, x=0.01, ha="left")
        grid = part.add_gridspec(
            len(strips[case]),
            2,
            width_ratios=(3, 2),
            height_ratios=[len(strip.comparisons) for strip in strips[case]],
        )
        prompts = 1 + max(prompt_of(r.name) for r in rows[0].result.workload.requests)
        size = -(-prompts // MOST_CELLS)
        for index, strip in enumerate(strips[case]):
            axes = part.add_subplot(grid[index, 0])
            _draw_strip(axes, strip, prompts, size)
        axes.set_xlabel(f"prompt (number{f', {size} to a cell' if size > 1 else ''})", fontsize=9)
        _draw_occupancy(part.add_subplot(grid[:, 1]), rows[0])
    figure.legend(
        handles=[Patch(facecolor=c, edgecolor="#999999", label=n) for n, c in reversed(STATES)],
        loc="outside lower left",
        ncols=len(STATES),
        fontsize=9,
        frameon=False,
    )
    figure.text(0.99, 0.01, _versions(verdict), ha="right", va="bottom", fontsize=7)
    return figure


def draw(verdict: Verdict, path: Path) -> None:
    """Writes the picture in the format of `path`'s suffix, whole or not at all."""
    content = io.BytesIO()
    # No time of creation: the same check gives the same bytes.
    suffix = path.suffix.lower()[1:]
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    picture(verdict).savefig(content, format=suffix, dpi=150, metadata=metadata[suffix])
    write_atomically(path, content.getvalue())
