# SPDX-License-Identifier: Apache-2.0
"""What a real Spack makes of a request. Slow: each takes Spack half a minute or more."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.spack.real_spack import ROOT, Spack
from vllm_ascend import soc

pytestmark = pytest.mark.slow

STAGES = ["ascendc-batch-invariant-ops", "py-batch-invariant-ops", "vllm-ascend"]
NPUS = [row for row in soc.rows() if row.is_npu]
CHOICES = [f"soc={row.name}" for row in soc.rows()] + [f"target={row.targets[0]}" for row in NPUS]


def nodes(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert "refused" not in answer, answer["refused"]
    return {node["name"]: node for node in answer["nodes"]}


def assert_stages(answer: dict[str, Any], row: soc.Soc, target: str) -> None:
    """The three stages in order, for this SoC, on `target`; nothing else is on `target`."""
    found = nodes(answer)
    assert [name for name in answer["order"] if name in STAGES] == STAGES
    for stage in STAGES:
        assert found[stage]["variants"]["soc"] == row.name
        assert found[stage]["target"] == target
    for name, node in found.items():
        if name not in STAGES:
            assert node["target"] not in {one for npu in NPUS for one in npu.targets}, name
    providers = {found[stage]["variants"]["provider"] for stage in STAGES[:2]}
    assert providers == {"official" if row.is_npu else "source"}
    assert ("cann" in found) == ("py-torch-npu" in found) == row.is_npu
    assert found["py-vllm"]["variants"]["device"] == ("empty" if row.is_npu else "cpu")


@pytest.mark.parametrize("row", NPUS, ids=[row.name for row in NPUS])
def test_the_literal_command(spack: Spack, row: soc.Soc) -> None:
    target = row.targets[0]
    request = f"vllm-ascend+batch_invariant target={target}"
    answer = spack.concretize(request)[request]
    assert_stages(answer, row, target)
    others = [node for node in answer["nodes"] if node["target"] != target]
    # The count of those that keep the host's target: everything but the three stages.
    assert len(others) == len(answer["nodes"]) - len(STAGES)
    assert {node["family"] for node in others} == {others[0]["family"]}


def test_soc_alone_does_the_same_on_the_hosts_target(spack: Spack) -> None:
    row = NPUS[0]
    request = f"vllm-ascend soc={row.name}"
    answer = spack.concretize(request)[request]
    assert_stages(answer, row, nodes(answer)["py-torch-npu"]["target"])


def test_cpu_needs_nothing_of_an_npu(spack: Spack) -> None:
    request = "vllm-ascend soc=cpu"
    answer = spack.concretize(request)[request]
    host = nodes(answer)["python-venv"]["target"]
    assert_stages(answer, soc.resolve("cpu"), host)


def test_without_the_operators_their_stages_are_absent(spack: Spack) -> None:
    request = "vllm-ascend~batch_invariant"
    found = nodes(spack.concretize(request)[request])
    assert not found.keys() & set(STAGES[:2])
    assert found["vllm-ascend"]["variants"]["soc"] == "none"


def test_neither_is_refused_with_the_choices(spack: Spack) -> None:
    request = "vllm-ascend+batch_invariant"
    refused = spack.concretize(request)[request]["refused"]
    assert "name the SoC: " in refused
    for choice in CHOICES:
        assert choice in refused


@pytest.mark.parametrize("host", ["", "x86_64_v3"])
def test_every_target_name(spack: Spack, host: str) -> None:
    # Stage 1 alone, which is quick to solve, stands for the three.
    stage = STAGES[0]
    rows = {f"{stage} target={target}": row for row in NPUS for target in row.targets}
    answers = spack.concretize(*rows, host=host)
    for request, row in rows.items():
        found = nodes(answers[request])
        assert found[stage]["target"] == request.partition("target=")[2]
        assert found[stage]["variants"]["soc"] == row.name


@pytest.mark.parametrize("host", ["aarch64", "neoverse_n1"])
def test_an_aarch64_host(spack: Spack, host: str) -> None:
    stage = STAGES[0]
    requests = [f"{stage} target={row.targets[0]}" for row in NPUS] + [f"{stage} soc=cpu"]
    answers = spack.concretize(*requests, host=host)
    for row in NPUS:
        found = nodes(answers[f"{stage} target={row.targets[0]}"])
        assert found[stage]["target"] == row.targets[0]
        assert found[stage]["family"] == "aarch64"
        # The one artifact whose sha256 is known.
        assert found[stage]["fetched"] == (row.label == "A3")
    assert nodes(answers[f"{stage} soc=cpu"])[stage]["target"] == host


def test_a_contradiction_is_refused(spack: Spack) -> None:
    requests = {
        f"{STAGES[0]} target=910b soc=ascend950": "target=910b is Atlas A2: leave soc out or say "
        "soc=ascend910b",
        f"{STAGES[0]} target=950 soc=cpu": "target=950 is Atlas 950PR & 950DT: leave soc out or "
        "say soc=ascend950",
    }
    answers = spack.concretize(*requests)
    for request, message in requests.items():
        assert message in answers[request]["refused"]


def test_operators_of_an_npu_from_source_are_refused(spack: Spack) -> None:
    requests = [f"{STAGES[0]} soc={row.name} provider=source" for row in NPUS]
    answers = spack.concretize(*requests)
    for row, request in zip(NPUS, requests, strict=True):
        expected = f"the operators of {row.name} are not built from source yet: say provider=off"
        assert expected in answers[request]["refused"]


def test_a_spack_that_takes_no_new_targets_gets_a_sentence(spack: Spack) -> None:
    script = spack.scope / "changed.py"
    script.write_text(
        "import spack.repo\n"
        "from spack.solver.asp import SpackSolverSetup\n"
        "del SpackSolverSetup.target_defaults\n"
        f"spack.repo.PATH.get_pkg_class('{STAGES[0]}')\n"
    )
    said = spack("python", str(script))
    assert "target=<SoC> is not available with this Spack" in said
    assert "use soc=<SoC>, or the archspec extension in " in said


def test_the_archspec_extension_does_where_registration_fails(spack: Spack, tmp_path: Path) -> None:
    own = spack.with_scope(tmp_path / "scope")
    unrestricted = {"concretizer": {"targets": {"host_compatible": False}}}
    (own.scope / "concretizer.yaml").write_text(yaml.safe_dump(unrestricted))
    extension = ROOT / "recipes/spack/archspec" / platform.machine()
    with_extension = dataclasses.replace(
        own, environ=own.environ | {"ARCHSPEC_EXTENSION_CPU_DIR": str(extension)}
    )
    row = NPUS[0]
    request = f"{STAGES[0]} soc={row.name} target={row.targets[0]}"
    assert "refused" in own.concretize(request, host="unregistered")[request]
    found = nodes(with_extension.concretize(request, host="unregistered")[request])
    assert found[STAGES[0]]["target"] == row.targets[0]
    assert found[STAGES[0]]["variants"]["soc"] == row.name
