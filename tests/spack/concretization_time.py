# SPDX-License-Identifier: Apache-2.0
"""What our repository costs a concretization.

    python -m tests.spack.concretization_time DIR [--turns 5] [REQUEST]

Two requests take turns, each a `spack spec` of its own: py-torch without our repository, and
REQUEST with it. torch is an external in both. CPU seconds of the whole command are compared, which
other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import resource
import statistics
from pathlib import Path

import yaml

from tests.spack.real_spack import Spack, make_spack


def without_our_repository(spack: Spack, scope: Path) -> Spack:
    own = spack.with_scope(scope)
    path = scope / "repos.yaml"
    repositories = yaml.safe_load(path.read_text())
    del repositories["repos"]["ascend"]
    path.write_text(yaml.safe_dump(repositories))
    return own


def cpu_seconds(spack: Spack, request: str) -> float:
    """What a fresh `spack spec` of this request takes, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    spack("spec", "--fresh", request)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("request", nargs="?", default="vllm-ascend+batch_invariant target=910b")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    directory = options.directory.absolute()
    spack = make_spack(directory)
    scope = directory / "scope-without"
    runs = {
        "py-torch, without our repository": (without_our_repository(spack, scope), "py-torch"),
        f"{options.request}, with it": (spack, options.request),
    }
    for one, _ in runs.values():
        one("providers", "mpi")  # makes the index of packages, where there is none yet
    measured: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.turns):
        for name, (one, request) in runs.items():
            measured[name].append(cpu_seconds(one, request))
    medians = {name: statistics.median(values) for name, values in measured.items()}
    base = next(iter(medians.values()))
    print(spack("--version").strip())
    for name, values in measured.items():
        listed = " ".join(f"{value:.1f}" for value in values)
        print(f"{name}: median {medians[name]:.1f} s ({medians[name] / base - 1:+.0%}) of {listed}")


if __name__ == "__main__":
    main()
