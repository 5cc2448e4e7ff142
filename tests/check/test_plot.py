# SPDX-License-Identifier: Apache-2.0
"""`check --plot`: one sees which prompts differ in which runs, and nothing covers anything else."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend.batch_invariant.check import plot
from vllm_ascend.batch_invariant.check.command import Check, run
from vllm_ascend.batch_invariant.check.comparison import compare, render
from vllm_ascend.batch_invariant.check.verdict import Verdict
from vllm_ascend.batch_invariant.progress import Progress

from .synthetic_runs import Arithmetic, SyntheticEngines, depends_on_the_batch, invariant, options

Made = Callable[..., Verdict]


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Made:
    """The verdict of a check whose engines compute as said."""

    def make(
        subject: Arithmetic = invariant,
        control: Arithmetic = depends_on_the_batch,
        models: int = 1,
        **changed: object,
    ) -> Verdict:
        config = {"vocab_size": 300, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}
        names = []
        for number in range(models):
            model = tmp_path / f"a-model-with-a-longer-name-{number}"
            model.mkdir(exist_ok=True)
            (model / "config.json").write_text(json.dumps(config))
            names.append(str(model))
        engines = SyntheticEngines(subject, control)
        return Check(options(model=names, **changed), Progress(sys.stderr), engines).run()

    return make


def only_greedy_in_a_batch_of_8(request: str, rows: int) -> float:
    return invariant(request, rows) - (2.0**-20 if request == "greedy1" and rows == 8 else 0.0)


def test_a_cell_is_a_prompt_in_a_run_and_takes_the_worst() -> None:
    same, bits = (render(1, 1, [(1, -1.0)]),), (render(1, 1, [(1, -1.5)]),)
    token = (render(2, 1, [(2, -1.0)]),)
    alone = dict.fromkeys(("greedy0", "seeded0", "seeded0, output 2", "greedy2"), same)
    runs = [("greedy0", same), ("seeded0", token), ("seeded0, output 2", bits), ("greedy2", bits)]
    strip = plot.Strip("mode", (compare("batch of 2", alone, runs),))
    assert strip.cells(4) == [[plot.TOKEN, plot.NOT_COMPARED, plot.BITS, plot.NOT_COMPARED]]


def test_one_difference_among_thousands_of_prompts_keeps_its_cell() -> None:
    row = [plot.SAME] * 4096
    row[1234] = plot.BITS
    cells = plot.together(row, 32)
    assert len(cells) == plot.MOST_CELLS and cells[1234 // 32] == plot.BITS
    assert cells.count(plot.SAME) == 127


def test_the_title_says_the_verdict(made: Made) -> None:
    assert plot.title(made()).startswith("check: identical: all 46 comparisons identical, 1 of 1")
    wrong = plot.title(made(subject=depends_on_the_batch))
    assert wrong.startswith("check: different: 32 of 46 comparisons differ, 1 of 1 controls differ")
    unproven = plot.title(made(control=invariant))
    assert unproven.startswith("check: inconclusive: all 46 comparisons identical, 0 of 1")


def test_occupancy_is_the_mean_over_the_batches(made: Made) -> None:
    lines = plot.occupancy(made().rows[0])
    # 8 requests, one of which has two outputs: 9 sequences, over four batches and over one.
    assert lines == {2: [9 / 4] * 6, 8: [9.0] * 6}


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_states_differ_in_grey_too() -> None:
    levels = [luminance(colour) for _, colour in plot.STATES]
    assert all(a - b > 0.1 for a, b in itertools.pairwise(levels)), levels


def visible_texts(figure: Any) -> list[tuple[str, Any]]:
    """Every text that is drawn, with its place in pixels."""
    from matplotlib.axis import Axis
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    # Labels of ticks beyond the end of an axis exist and are not drawn.
    beyond = [
        label
        for axis in figure.findobj(Axis)
        for minor in (False, True)
        for label, place in zip(
            axis.get_ticklabels(minor), axis.get_ticklocs(minor=minor), strict=True
        )
        if not min(axis.get_view_interval()) <= place <= max(axis.get_view_interval())
    ]
    texts = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text() and text not in beyond
    ]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"models": 2, "prompts": 32, "batches": "1,2,8,32", "threads": "1,2,4"},
        {"prompts": 300, "batches": "2,128", "threads": "2"},
        {"prompts": 1, "batches": "1,2"},
        {"control": invariant, "threads": "1"},
    ],
    ids=["few", "two models", "many prompts", "one prompt", "no control differs"],
)
def test_no_text_covers_another_or_leaves_the_picture(made: Made, changed: dict[str, Any]) -> None:
    figure = plot.picture(made(**changed))
    texts = visible_texts(figure)
    assert len(texts) > 20
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in texts:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        assert not a.overlaps(b), f"{one!r} covers {other!r}"
    shown = [text for text, _ in texts]
    assert any("prompt (number" in text for text in shown) and "step of a batch (number)" in shown


def test_what_differs_has_its_colour_in_the_picture_and_only_then(made: Made) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb

    def pixels(verdict: Verdict) -> int:
        canvas = FigureCanvasAgg(plot.picture(verdict))
        canvas.draw()
        picture = memoryview(canvas.buffer_rgba()).tobytes()
        colour = bytes(round(255 * part) for part in to_rgb(plot.STATES[plot.BITS][1]))
        return picture.count(colour + b"\xff")

    legend = pixels(made(control=invariant))
    one_cell = pixels(made(subject=only_greedy_in_a_batch_of_8, control=invariant, threads="1"))
    assert 0 < legend < one_cell


@pytest.mark.parametrize("suffix", plot.FORMATS)
def test_a_check_draws_itself_into_a_file_the_same_each_time(
    made: Made, tmp_path: Path, suffix: str
) -> None:
    verdict = made()
    verdict.seconds = 1.0
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    plot.draw(verdict, first)
    plot.draw(verdict, second)
    signature = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert first.read_bytes().startswith(signature)
    if suffix == ".png":
        assert first.read_bytes() == second.read_bytes()


def test_the_command_writes_the_picture(made: Made, tmp_path: Path) -> None:
    made()
    model = str(next(tmp_path.glob("a-model*")))
    assert run(options(model=[model], plot=tmp_path / "p.png"), SyntheticEngines()) == 0
    assert (tmp_path / "p.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("name", "missing", "said"),
    [
        ("p.png", True, "--plot needs matplotlib, which is not installed: pip --python "),
        ("p.jpeg", False, "expected a name that ends in .png, .svg, .pdf"),
        ("nowhere/p.png", False, "its directory does not exist"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line_before_an_engine_starts(
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    missing: bool,
    said: str,
) -> None:
    made()
    capsys.readouterr()
    if missing:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    engines = SyntheticEngines()
    model = str(next(tmp_path.glob("a-model*")))
    assert run(options(model=[model], plot=tmp_path / name), engines) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("check: --plot") and said in line
    assert engines.started == []
