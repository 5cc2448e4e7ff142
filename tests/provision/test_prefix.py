# SPDX-License-Identifier: Apache-2.0
"""A prefix is the old one or the new one, never half of either, and is nobody else's folder."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from provision import prefix as prefixes
from provision.conda_package import Entry, Metadata
from provision.prefix import activated, install_into, solve_for
from provision.prefix_stamp import PrefixError, installed
from provision.progress import Progress
from provision.standin import Planned, assemble

from tests.mutations import mutations


def demo(version: str, *, depends: tuple[str, ...] = ()) -> Planned:
    activate = b'export DEMO="$CONDA_PREFIX"\n'
    return Planned(
        Metadata("demo", version, "h_0", "noarch", depends=depends, noarch="generic"),
        lambda: (
            Entry("share/version", version.encode()),
            Entry("share/data", random.Random(version).randbytes(20_000)),
            Entry("etc/conda/activate.d/demo.sh", activate),
        ),
    )


def install(channel: Path, prefix: Path, cache: Path, specs: Sequence[str] = ("demo",)) -> bool:
    return install_into(solve_for([channel.as_uri()], specs), specs, prefix, cache)


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    folder = tmp_path / "channel"
    assemble(folder, [demo("1.0")], Progress())
    return folder


@pytest.mark.parametrize("name", ["plain", "with space", "größe"])
def test_a_prefix_is_installed_once_replaced_on_change_and_activated(
    channel: Path, tmp_path: Path, name: str
) -> None:
    prefix = tmp_path / name
    assert install(channel, prefix, tmp_path / "cache")
    assert not install(channel, prefix, tmp_path / "cache")
    (prefix / "left-by-somebody").touch()
    assemble(channel, [demo("2.0")], Progress())
    assert install(channel, prefix, tmp_path / "cache2")
    assert (prefix / "share/version").read_text() == "2.0"
    assert not (prefix / "left-by-somebody").exists()
    [package] = installed(prefix) or []
    assert (package.name, package.version, package.build) == ("demo", "2.0", "h_0")
    assert len(package.sha256) == 64
    environment = activated(prefix, dict(os.environ))
    assert environment["DEMO"] == environment["CONDA_PREFIX"] == str(prefix)
    assert environment["PATH"].split(":")[0] == str(prefix / "bin")
    assert sorted(p.name for p in tmp_path.glob(".*")) == []


def test_an_installation_that_fails_leaves_the_old_prefix(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "prefix"
    install(channel, prefix, tmp_path / "cache")
    assemble(channel, [demo("2.0")], Progress())

    def full(*arguments: object, **named: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(prefixes, "_put_in_place", full)
    with pytest.raises(OSError, match="No space left"):
        install(channel, prefix, tmp_path / "cache2")
    assert (prefix / "share/version").read_text() == "1.0"
    monkeypatch.undo()
    assert install(channel, prefix, tmp_path / "cache2")
    assert (prefix / "share/version").read_text() == "2.0"


@pytest.mark.parametrize("count", [56, pytest.param(800, marks=pytest.mark.slow)])
def test_no_mutation_of_a_package_is_installed(channel: Path, tmp_path: Path, count: int) -> None:
    """What lies in the channel is not what its index states: nothing is written."""
    prefix, cache = tmp_path / "a prefix", tmp_path / "cache"
    assemble(tmp_path / "other", [demo("2.0")], Progress())
    [archive], [other] = channel.rglob("*.conda"), (tmp_path / "other").rglob("*.conda")
    good = archive.read_bytes()
    records = solve_for([channel.as_uri()], ["demo"])
    for name, data in mutations(good, other.read_bytes(), count, seed=3):
        archive.write_bytes(data)
        with pytest.raises(PrefixError, match=r"is damaged: expected sha256 [0-9a-f]{64}, found"):
            install_into(records, ["demo"], prefix, cache)
            pytest.fail(f"accepted: {name}")
        assert not prefix.exists() and not cache.exists()
    archive.unlink()
    with pytest.raises(PrefixError, match="No such file"):
        install_into(records, ["demo"], prefix, cache)
    archive.write_bytes(good)
    assert install_into(records, ["demo"], prefix, cache)
    assert (prefix / "share/version").read_text() == "1.0"


def test_without_an_exchange_of_names_the_new_prefix_still_arrives(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "prefix"
    install(channel, prefix, tmp_path / "cache")
    assemble(channel, [demo("2.0")], Progress())
    monkeypatch.setattr(prefixes, "_exchange", lambda new, old: False)
    assert install(channel, prefix, tmp_path / "cache2")
    assert (prefix / "share/version").read_text() == "2.0"


def test_a_folder_that_was_not_made_here_is_refused(channel: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").touch()
    with pytest.raises(
        PrefixError, match=r"not made by quickstart or from a bundle; choose another"
    ):
        install(channel, theirs, tmp_path / "cache")
    assert (theirs / "precious").exists()
    (theirs / "precious").unlink()
    assert install(channel, theirs, tmp_path / "cache")


def test_an_environment_that_has_no_solution_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "channel"
    assemble(folder, [demo("1.0", depends=("absent >=3",))], Progress())
    with pytest.raises(PrefixError, match=r"no environment with demo: .*absent"):
        solve_for([folder.as_uri()], ["demo"])
