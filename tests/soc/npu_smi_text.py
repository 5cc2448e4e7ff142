# SPDX-License-Identifier: Apache-2.0
"""Writes what `npu-smi` prints, in its several layouts."""

from __future__ import annotations

from collections.abc import Sequence

HEALTH = ("OK", "Warning", "Alarm", "Critical", "UNKNOWN", "Frozen")


def packed_table(
    names: Sequence[str],
    *,
    dies: int = 1,
    width: int = 27,
    health: str = "OK",
    bus: str = "0000:C1:00.0",
    hbm: int | None = 65536,
    first: int = 0,
) -> str:
    """`npu-smi info` up to 25.5: number and name share a cell.

    Args:
        names: the chip's name of each card.
        dies: chips a card.
        width: of the first column, 27 as a rule.
        hbm: megabytes, None for a chip without.
    """
    border = f"+{'=' * width}+{'=' * 15}+{'=' * 52}+"
    usage = f" AICore(%)   Memory-Usage(MB){'' if hbm is None else '  HBM-Usage(MB)'}"
    lines = [
        f"+{'-' * (width + 69)}+",
        f"| {'npu-smi 24.1.rc3.7               Version: 24.1.rc3.7':<{width + 68}}|",
        f"|{' NPU   Name':<{width}}|{' Health':<15}|{' Power(W)    Temp(C)':<52}|",
        f"|{' Chip  Phy-ID':<{width}}|{' Bus-Id':<15}|{usage:<52}|",
        border,
    ]
    for number, name in enumerate(names, start=first):
        for die in range(dies):
            used = "" if hbm is None else f"          3416 / {hbm}"
            usage = f" 0           0    / 0{used}"
            lines += [
                f"|{f' {number:<5} {name}':<{width}}|{f' {health}':<15}|{' 86.0        40':<52}|",
                f"|{f' {die:<5} {number * dies + die}':<{width}}|{f' {bus}':<15}|{usage:<52}|",
                border,
            ]
    lines += [
        f"|{' NPU     Chip':<{width}}|{' Process id':<15}|{' Process name':<52}|",
        border,
        f"|{' 0       0':<{width}}|{' 692318':<15}|{' Ascend310P3':<52}|",
        border,
    ]
    return "\n".join(lines) + "\n"


def split_table(names: Sequence[str], *, health: str = "OK") -> str:
    """`npu-smi info` since 25.7: number and name have a cell each."""
    border = f"+{'=' * 8}+{'=' * 18}+{'=' * 15}+{'=' * 53}+"
    usage = "NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)"
    lines = [
        f"| {'npu-smi 25.7.rc1.6                    Version: 25.7.rc1.6':<96}|",
        f"| NPU ID | {'Name':<17}| {'Health':<14}| {'Power(W)    Temp(C)':<52}|",
        f"|        | {'':<17}| {'Bus-Id':<14}| {usage:<52}|",
        border,
    ]
    for number, name in enumerate(names):
        usage = "0           0    / 0          8824 / 131072"
        lines += [
            f"| {number:<7}| {name:<17}| {health:<14}| {'205.7       71':<52}|",
            f"|        | {'':<17}| {'0000:71:00.0':<14}| {usage:<52}|",
            border,
        ]
    lines += [
        f"| NPU ID | {'Process id':<17}| {'Process name':<14}| {'Process memory(MB)':<52}|",
        border,
        f"| 0      | {'692318':<17}| {'OK':<14}| {'Ascend310P3':<52}|",
        border,
    ]
    return "\n".join(lines) + "\n"


def board(chip: str, number: int = 0) -> str:
    """`npu-smi info -t board` of a chip by the name that soc.toml has."""
    name, _, npu_name = chip.partition("_")
    fields = {"NPU ID": str(number)}
    if npu_name:
        fields |= {"NPU Name": npu_name, "Chip ID": "0", "Chip Name": name}
    else:
        fields |= {"Chip ID": "0", "Chip Type": "Ascend", "Chip Name": name}
    return "".join(f"        {key:<31}: {value}\n" for key, value in fields.items())
