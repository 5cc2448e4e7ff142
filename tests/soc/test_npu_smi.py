# SPDX-License-Identifier: Apache-2.0
"""Every text of npu-smi gives the SoC that it names, or a sentence; none gives another SoC."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soc.npu_smi_text import HEALTH, board, packed_table, split_table
from vllm_ascend import soc
from vllm_ascend.soc import npu_smi

SAMPLES = Path(__file__).parent / "samples/npu-smi"

# What each machine is, by its file's name.
SOC_OF = {
    "a2-910b1-8x-24.1.0.excerpt.txt": "ascend910b",
    "a2-910b3-1x-truncated-24.1.rc1.txt": "ascend910b",
    "a2-910b4-8x-24.1.0.3.txt": "ascend910b",
    "a2-910b4-board-c0.txt": "ascend910b",
    "a3-ascend910-8x2-24.1.rc3.7.txt": "ascend910_93",
    "a3-ascend910_9392-board-c0.txt": "ascend910_93",
    "a5-ascend950pr-board-25.7.rc1.6.txt": "ascend950",
}
REFUSED = {
    "odd-310p3-duo-no-hbm-25.2.0.txt": "'310P3' is not supported: an Ascend 310",
    "odd-first-gen-910b-8x-23.0.rc2.txt": "'910B' is not supported: a first-generation",
    "err-dcmi-8005.txt": "driver answers -8005",
}
CHIPS = [(chip, row.name) for row in soc.rows() for chip in row.chips]
UNSUPPORTED = [chip for entry in soc.table().unsupported for chip in entry.match]


def sample(name: str) -> str:
    return (SAMPLES / name).read_bytes().decode()


def answer(text: str) -> str:
    return npu_smi.identify(text, soc.table()).soc.name


def test_every_sample_has_an_expectation() -> None:
    assert {path.name for path in SAMPLES.iterdir()} == {*SOC_OF, *REFUSED}


@pytest.mark.parametrize("name", SOC_OF)
def test_a_machines_text_gives_its_soc(name: str) -> None:
    assert answer(sample(name)) == SOC_OF[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_machine_without_operators_or_with_a_fault_is_refused(name: str) -> None:
    with pytest.raises(soc.SocError, match=re.escape(REFUSED[name])) as caught:
        answer(sample(name))
    assert "\n" not in str(caught.value)


def test_every_chip_of_a_machine_is_read() -> None:
    found = npu_smi.identify(sample("a3-ascend910-8x2-24.1.rc3.7.txt"), soc.table())
    assert [chip.card for chip in found.chips] == [str(card) for card in range(8) for _ in "01"]
    assert {(chip.name, chip.hbm) for chip in found.chips} == {("Ascend910", 65536)}


@pytest.mark.parametrize(("chip", "name"), CHIPS)
def test_every_chip_of_the_table_is_known_in_each_layout(chip: str, name: str) -> None:
    listed = chip.partition("_")[0]
    assert answer(packed_table([listed])) == name
    assert answer(packed_table([listed] * 4, dies=2, width=31)) == name
    assert answer(split_table([listed])) == name
    for number in ("1", "79"):
        assert answer(board(chip.replace("*", number))) == name
        assert answer("".join(board(chip.replace("*", number), card) for card in range(8))) == name


@pytest.mark.parametrize("chip", UNSUPPORTED)
def test_every_unsupported_chip_is_refused_by_its_name_in_each_layout(chip: str) -> None:
    for name in (chip, f"Ascend{chip}", chip.lower()):
        for text in (packed_table([name], hbm=32768), packed_table([name], hbm=None), board(name)):
            with pytest.raises(soc.UnsupportedSocError, match=f"'{name}' is not supported"):
                answer(text)


@pytest.mark.parametrize(
    "chip", ["910", "910B5", "910B4-2", "Ascend951", "Ascend950", "H100", "920"]
)
def test_an_unknown_chip_is_refused_by_its_name(chip: str) -> None:
    for text in (packed_table([chip]), split_table([chip]), board(chip)):
        with pytest.raises(soc.UnknownSocError, match=f"unknown chip '{chip}'"):
            answer(text)


@pytest.mark.parametrize("npu_name", ["9", "910", "8392", "9a", "93x"])
def test_an_ascend910_that_is_no_93xx_is_refused_by_its_name(npu_name: str) -> None:
    with pytest.raises(soc.UnknownSocError, match=f"'Ascend910_{npu_name}'"):
        answer(board(f"Ascend910_{npu_name}"))


def test_ascend910_is_an_a3_by_its_memory_and_undecided_without() -> None:
    assert answer(packed_table(["Ascend910"], hbm=65536)) == "ascend910_93"
    with pytest.raises(soc.UnknownSocError, match="'Ascend910' with 32768 MB of HBM"):
        answer(packed_table(["Ascend910"], hbm=32768))
    with pytest.raises(npu_smi.UndecidedChipError, match=r"npu-smi info -t board -i 6 -c 0"):
        answer(packed_table(["Ascend910"], hbm=None, first=6))
    with pytest.raises(npu_smi.UndecidedChipError):
        answer("Chip Name : Ascend910\nNPU Name : NA\n")
    # One chip that says so speaks for those of its name.
    assert answer(packed_table(["Ascend910"], hbm=None) + board("Ascend910_9392")) == "ascend910_93"


@pytest.mark.parametrize("health", HEALTH)
def test_a_chip_in_any_state_is_a_chip(health: str) -> None:
    assert answer(packed_table(["910B3"], health=health)) == "ascend910b"
    assert answer(split_table(["Ascend950PR"], health=health)) == "ascend950"


@pytest.mark.parametrize("bus", ["NA", "****:**:**.*", "", "-", "0000:xx:00.0"])
def test_bus_ids_may_be_masked(bus: str) -> None:
    assert answer(packed_table(["910B3", "910B3"], bus=bus)) == "ascend910b"
    assert answer(packed_table(["Ascend910"], dies=2, bus=bus)) == "ascend910_93"
    with pytest.raises(soc.UnsupportedSocError, match="'310'"):
        answer(packed_table(["310"], bus=bus, hbm=None))


def test_chips_of_two_socs_are_an_error_that_names_both() -> None:
    two = packed_table(["910B4"]) + packed_table(["Ascend910"])
    with pytest.raises(
        npu_smi.NpuSmiError, match=r"910B4 \(ascend910b\), Ascend910 \(ascend910_93"
    ):
        answer(two)
    with pytest.raises(npu_smi.NpuSmiError, match="expected chips of one SoC"):
        answer(board("910B4") + board("Ascend950PR_9579", 1))
    with pytest.raises(soc.UnsupportedSocError, match="'310P3'"):
        answer(packed_table(["910B4", "310P3"]))
    assert answer(packed_table(["910B1", "910B2C", "910B4-1"])) == "ascend910b"


CHANGES: dict[str, Callable[[str], str]] = {
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "trailing blanks": lambda text: text.replace("\n", "      \t\n"),
    "no last newline": lambda text: text.rstrip("\n"),
    "empty lines": lambda text: text.replace("\n", "\n\n"),
    "indented": lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
    "a host's name before each row": lambda text: re.sub("(?m)^(?=[|+])", "node17: ", text),
    "a container's name before each row": lambda text: re.sub("(?m)^(?=[|+])", "npu-1  | ", text),
    "colours": lambda text: re.sub(r"(Ascend\w+|910\w+|OK)", "\x1b[1;32m\\1\x1b[0m", text),
    "a terminal's title": lambda text: f"\x1b]0;root@node: ~\x07{text}",
    "byte order mark": lambda text: f"\ufeff{text}",
    "drawn bars": lambda text: text.replace("|", "\u2502"),
    "messages between": lambda text: text.replace(
        "\n", "\nbash: warning: setlocale: LC_ALL: cannot change locale (zh_CN.UTF-8)\n"
    ),
    "messages of another language": lambda text: (
        f"\u8b66\u544a\uff1a\u8bbe\u5907\n{text}\u5b8c\u6210\n"
    ),
    "a line of many characters": lambda text: f"{'0 /' * 100_000}\n{text}",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SOC_OF)
def test_what_terminals_and_logs_do_to_a_text_changes_nothing(name: str, change: str) -> None:
    assert answer(CHANGES[change](sample(name))) == SOC_OF[name]


@pytest.mark.parametrize("name", [*SOC_OF, *REFUSED])
def test_a_text_cut_off_anywhere_gives_its_soc_or_a_sentence(name: str) -> None:
    text = sample(name)
    given = {}
    for length in range(len(text) + 1):
        try:
            given[length] = answer(text[:length])
        except soc.SocError as error:
            assert "\n" not in str(error)
    assert set(given.values()) <= {SOC_OF.get(name)}
    # Not before the name is whole.
    first = min(given, default=None)
    assert first is None or re.search(r"910B\d|Ascend9[15]0", text[:first])
    # The control: a text that is not cut off gives its SoC.
    assert (len(text) in given) == (name in SOC_OF)


@pytest.mark.parametrize(
    "text",
    ["", " \n\t\n", "-bash: npu-smi: command not found\n", "| NPU   Name | Health |\n", "\0\0"],
)
def test_a_text_without_a_chip_says_what_was_expected(text: str) -> None:
    with pytest.raises(npu_smi.NpuSmiError, match="expected the output of npu-smi info") as caught:
        answer(text)
    assert "\n" not in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize("code", ["-8005", "-8009", "-8020", "-8255"])
def test_a_drivers_fault_is_told_from_an_empty_text(code: str) -> None:
    text = (
        "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\n"
        f"dcmi module initialize failed. ret is {code}\n"
    )
    with pytest.raises(npu_smi.DriverFaultError, match=f"answers {code}"):
        answer(text)
    # Where chips are named, a message beside them is a message.
    assert answer(text + packed_table(["910B4"])) == "ascend910b"


def is_told_or_names_the_chip(text: str) -> None:
    """No traceback; and an answer only where a chip's name is in the text."""
    try:
        name = answer(text)
    except soc.SocError as error:
        assert "\n" not in str(error) and str(error)
        return
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).lower()
    [row] = [row for row in soc.rows() if row.name == name]
    assert any(chip.partition("_")[0].lower() in plain for chip in row.chips)


PIECES = st.sampled_from(
    [
        *(
            "|",
            "| 0     ",
            "| 0 | ",
            "910B",
            "910B4",
            "910B4-1",
            "Ascend910",
            "Ascend950PR",
            "310P3",
        ),
        *(" | OK | ", "| Alarm |", "0 / 65536 |", "1 / 2  3 / 32768 |", "\n", "\r\n", "+===+\n"),
        *("NPU Name : 9392\n", "Chip Name : ", "Chip Name : Ascend910\n", "Chip Type : Ascend\n"),
        *(
            "| Process id |",
            "| NPU Name | Health |",
            "\x1b[32m",
            "\x1b]",
            "ret is -8005\n",
            "NA",
            ":",
        ),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join)))
def test_no_text_ends_in_a_traceback_or_a_guess(text: str) -> None:
    is_told_or_names_the_chip(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damaged_sample_ends_in_a_traceback_or_a_guess(data: st.DataObject) -> None:
    text = sample(data.draw(st.sampled_from([*SOC_OF, *REFUSED])))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 200)))
        text = text[:start] + data.draw(st.one_of(st.just(""), st.text(max_size=9))) + text[end:]
    is_told_or_names_the_chip(text)
