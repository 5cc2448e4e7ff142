# SPDX-License-Identifier: Apache-2.0
"""What is printed can be read in a terminal and in a log; a file is whole or not there."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from vllm_ascend.batch_invariant.atomic_file import write_json
from vllm_ascend.batch_invariant.progress import Progress
from vllm_ascend.batch_invariant.text_table import table


def test_columns_line_up_and_numbers_are_set_to_the_right() -> None:
    assert table(["name", "n"], [["a", 5], ["longer", 12]]) == (
        "name     n\n------  --\na        5\nlonger  12"
    )


def test_a_row_of_another_width_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 cells"):
        table(["a", "b"], [["x"]])


def test_a_log_gets_whole_lines_now_and_then() -> None:
    stream = io.StringIO()
    progress = Progress(stream, interval=3600)
    for number in range(5):
        progress.show(f"step {number}")
    progress.show("end", now=True)
    progress.clear()
    assert stream.getvalue() == "step 0\nend\n"


def test_a_terminal_gets_one_line_that_changes() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(stream)
    progress.show("a long line")
    progress.show("short")
    progress.clear()
    assert stream.getvalue() == "\ra long line\rshort      \r     \r"


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    assert json.loads(file.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_the_umask_decides_who_may_read_a_result(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "out.json", {})
    finally:
        os.umask(before)
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o640
