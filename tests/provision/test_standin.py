# SPDX-License-Identifier: Apache-2.0
"""The stand-in channel holds what the lock names, reuses what is unchanged, and solves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from provision import standin
from provision.conda_names import Target
from provision.progress import Progress
from provision.standin import Planned, assemble, build_string, plan_wheel
from provision.state import file_sha256
from provision.wheel import Wheel

# The fixture make_wheel of conftest.py.
WheelMaker = Callable[..., Path]
TARGET = Target("3.11.7", "x86_64")


def plans_of(*wheels: Path) -> list[Planned]:
    known = {wheel.name: wheel for wheel in map(Wheel, wheels)}
    return [
        plan_wheel(wheel, known, [file_sha256(wheel.path)], TARGET, ()) for wheel in known.values()
    ]


def files_of(channel: Path) -> set[str]:
    return {path.name for path in channel.glob("*/*.conda")}


def test_packages_carry_standin_and_a_digest_of_their_content() -> None:
    build = build_string(["cpu", "py311"], "content")
    assert build.startswith("cpu_py311_standin_") and build.endswith("_0")
    assert build == build_string(["cpu", "py311"], "content")
    assert build != build_string(["cpu", "py311"], "other content")


def test_a_wheels_package_states_its_metadatas_dependencies(make_wheel: WheelMaker) -> None:
    pure = make_wheel("pure", requires=("binary>=2; python_version > '3'",))
    binary = make_wheel("binary", "2.1+cpu", tag="cp311-cp311-manylinux_2_28_x86_64")
    first, second = (planned.metadata for planned in plans_of(pure, binary))
    assert (first.subdir, first.noarch) == ("noarch", "python")
    assert first.depends == ("binary >=2", "python")
    assert (second.version, second.noarch) == ("2.1", None)
    assert second.build.startswith("cpu_py311_standin_")
    assert second.depends == ("python 3.11.*", "python_abi 3.11.* *_cp311")


def test_a_second_run_makes_nothing_and_a_damaged_package_is_made_again(
    make_wheel: WheelMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = plans_of(make_wheel("one"), make_wheel("two"))
    channel = tmp_path / "channel"
    made: list[str] = []
    real = standin._make

    def counted(folder: Path, planned: Planned) -> standin.Built:
        made.append(planned.metadata.name)
        return real(folder, planned)

    monkeypatch.setattr(standin, "_make", counted)
    first = assemble(channel, plans, Progress())
    assert sorted(made) == ["one", "two"]
    assert assemble(channel, plans, Progress()) == first
    assert sorted(made) == ["one", "two"]
    path = channel / first[0].subdir / first[0].file
    path.write_bytes(path.read_bytes()[:-1])
    assert assemble(channel, plans, Progress()) == first
    assert sorted(made) == ["one", "one", "two"]
    assert file_sha256(path) == first[0].sha256


def test_what_is_no_longer_planned_and_what_a_kill_left_goes(
    make_wheel: WheelMaker, tmp_path: Path
) -> None:
    channel = tmp_path / "channel"
    one, two = make_wheel("one"), make_wheel("two")
    assemble(channel, plans_of(one, two), Progress())
    (channel / "noarch" / ".one-1.0-x.conda.77.partial").write_bytes(b"half")
    [kept] = assemble(channel, plans_of(one), Progress())
    assert files_of(channel) == {kept.file}
    assert not list(channel.glob("*/.*.partial"))
    repodata = json.loads((channel / "noarch" / "repodata.json").read_text())
    assert list(repodata["packages.conda"]) == [kept.file]
    assert repodata["packages.conda"][kept.file]["sha256"] == kept.sha256


def test_planning_a_package_twice_is_an_error(make_wheel: WheelMaker, tmp_path: Path) -> None:
    plans = plans_of(make_wheel("one"))
    with pytest.raises(ValueError, match="planned twice: one"):
        assemble(tmp_path, [*plans, *plans], Progress())
