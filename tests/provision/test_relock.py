# SPDX-License-Identifier: Apache-2.0
"""Lock files made from a plan, by the real pip with wheels made here for its index."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from provision.lockfile import LockError, Pin, parse, read
from provision.relock import relock
from provision.state import file_sha256

# The fixture make_wheel of conftest.py.
WheelMaker = Callable[..., Path]
PYTHON = ".".join(map(str, sys.version_info[:2]))
HERE = f"{sys.platform}-{platform.machine()}"


@pytest.fixture
def index(make_wheel: WheelMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelMaker:
    """pip finds what the returned function makes, and nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return make_wheel


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    return folder


def plan(locks: Path, text: str, python: str = PYTHON) -> None:
    (locks / "plan.toml").write_text(f'python = "{python}"\nplatform = "{HERE}"\n{text}')


def table(
    name: str,
    requires: Sequence[str] = (),
    without_deps: Sequence[str] = (),
    constrain_to: Sequence[str] = (),
    **more: str | Sequence[str] | Mapping[str, str],
) -> str:
    """A [lock.<name>] of plan.toml: TOML and JSON write all but a table alike."""
    keys = {
        "about": "of a test",
        "requires": requires,
        "without_deps": without_deps,
        "constrain_to": constrain_to,
        **more,
    }
    lines = [
        f"{key}.{inner} = {json.dumps(text)}"
        for key, value in keys.items()
        if isinstance(value, Mapping)
        for inner, text in value.items()
    ]
    lines += [
        f"{key} = {json.dumps(value)}"
        for key, value in keys.items()
        if not isinstance(value, Mapping)
    ]
    return "\n".join([f"[lock.{name}]", *lines, ""])


def test_a_lock_is_what_pip_would_install_with_each_digest(
    index: WheelMaker, locks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = index("root", requires=("leaf",))
    index("leaf", "1.0")
    newest = index("leaf", "2.0")
    plan(locks, table("one", ["root"]))
    relock(locks, [])
    assert sorted(read(locks / "one.txt")) == [
        Pin("leaf", "2.0", (file_sha256(newest),)),
        Pin("root", "1.0", (file_sha256(root),)),
    ]
    assert capsys.readouterr().out == "one.txt: 2 pins\n"
    assert "--require-hashes -r locks/one.txt" in (locks / "one.txt").read_text()


def test_a_lock_keeps_to_another_and_only_the_named_one_is_written(
    index: WheelMaker, locks: Path
) -> None:
    index("leaf", "1.0")
    index("root", requires=("leaf",))
    plan(locks, table("one", ["leaf"]) + table("two", ["root"], constrain_to=["one"]))
    relock(locks, ["one"])
    assert not (locks / "two.txt").exists()
    before = (locks / "one.txt").read_bytes()
    index("leaf", "2.0")
    relock(locks, ["two"])
    assert (locks / "one.txt").read_bytes() == before
    assert {pin.name: pin.version for pin in read(locks / "two.txt")}["leaf"] == "1.0"


def test_a_distribution_comes_without_what_the_plan_leaves_out(
    index: WheelMaker, locks: Path
) -> None:
    index(
        "served",
        requires=("leaf[fast]", "heavy", 'tester; extra == "test"', "old; python_version < '3'"),
    )
    index("leaf")
    index("apart", requires=("heavy",))
    text = table(
        "one",
        without_deps=["apart"],
        distribution="served",
        without=["heavy"],
        drop_extras=["leaf"],
    )
    plan(locks, text)
    relock(locks, [])
    assert {pin.name for pin in read(locks / "one.txt")} == {"served", "leaf", "apart"}


def test_what_was_left_out_and_comes_in_by_another_way_is_named(
    index: WheelMaker, locks: Path
) -> None:
    index("served", requires=("heavy", "leaf"))
    index("leaf", requires=("heavy",))
    index("heavy")
    plan(locks, table("one", distribution="served", without=["heavy"]))
    with pytest.raises(LockError, match="one: heavy came in through another requirement"):
        relock(locks, [])
    assert not (locks / "one.txt").exists()


@pytest.fixture
def machines() -> list[str]:
    """This one and another."""
    both = ["x86_64", "aarch64"]
    return sorted(both, key=lambda machine: machine != platform.machine())


def test_a_lock_for_several_machines_has_the_digest_of_each(
    index: WheelMaker, locks: Path, machines: list[str]
) -> None:
    here, there = machines
    made = [index("npu", tag=f"cp311-cp311-manylinux_2_17_{machine}") for machine in machines]
    source = "src==3 --hash=sha256:" + "a" * 64
    index("npu", "0.9", tag=f"cp311-cp311-manylinux_2_17_{there}", requires=("absent",))
    index("one", requires=(f"only; platform_machine == '{here}'", "any", "built"))
    index("only", tag=f"py3-none-manylinux_2_17_{here}")
    index("any")
    built = index("built", tag=f"py3-none-manylinux_2_17_{here}")
    text = table(
        "one",
        ["one"],
        without_deps=["npu"],
        machines=machines,
        only_on={"only": here},
        wheels=["built==1.0 --hash=sha256:" + "b" * 64],
        sources=[source],
    )
    plan(locks, text)
    relock(locks, [])
    pins = {pin.name: pin for pin in parse((locks / "one.txt").read_text())}
    assert pins["npu"].sha256 == tuple(map(file_sha256, made))
    assert pins["src"].sha256 == ("a" * 64,)
    assert pins["built"].sha256 == (file_sha256(built), "b" * 64)
    assert len(pins["any"].sha256) == 1
    assert {name: pin.machine for name, pin in pins.items() if pin.machine} == {"only": here}


@pytest.mark.parametrize(
    "requirement",
    ["absent", "absent; platform_machine == '{there}'", "any[more]"],
    ids=["there alone", "by a marker", "by an extra"],
)
def test_what_another_machine_lacks_is_named(
    index: WheelMaker, locks: Path, machines: list[str], requirement: str
) -> None:
    here, there = machines
    index("one", tag=f"py3-none-manylinux_2_17_{here}", requires=("any[more]",))
    asked = requirement.format(there=there)
    index("one", tag=f"py3-none-manylinux_2_17_{there}", requires=(asked,))
    index("any", requires=(f"absent; extra == 'more' and platform_machine == '{there}'",))
    plan(locks, table("one", ["one"], machines=machines))
    with pytest.raises(LockError, match=f"one: on {there} (one|any) requires absent, which is not"):
        relock(locks, [])
    assert not (locks / "one.txt").exists()


def test_another_machines_wheel_is_of_the_locked_version(
    index: WheelMaker, locks: Path, machines: list[str]
) -> None:
    index("one")
    wheels = ["one==2.0 --hash=sha256:" + "b" * 64]
    plan(locks, table("one", ["one"], machines=machines, wheels=wheels))
    with pytest.raises(LockError, match=r"one: `wheels` states another one than 1\.0"):
        relock(locks, [])


def test_a_lock_that_cannot_be_made_leaves_the_old_one(index: WheelMaker, locks: Path) -> None:
    (locks / "one.txt").write_text("old")
    plan(locks, table("one", ["no-such-distribution"]))
    with pytest.raises(LockError, match=r"pip install failed: ERROR: .*no-such-distribution"):
        relock(locks, [])
    with pytest.raises(LockError, match="no lock named two; there are: one"):
        relock(locks, ["two"])
    plan(locks, table("one"), python="3.12")
    with pytest.raises(LockError, match=r"CPython 3\.12 on .*; this is 3\.11"):
        relock(locks, ["one"])
    assert sorted(path.name for path in locks.iterdir()) == ["one.txt", "plan.toml"]
    assert (locks / "one.txt").read_text() == "old"
