# SPDX-License-Identifier: Apache-2.0
"""What a wheel's metadata states is said in conda's words, and nothing is dropped unnoticed."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from provision.conda_names import (
    Target,
    UntranslatableError,
    conda_name,
    dependencies,
    match_spec,
    split_local,
    version_spec,
)

TARGET = Target("3.11.7", "x86_64")


def translate(
    metadata: dict[str, list[str]], name: str, left_out: tuple[str, ...] = ()
) -> tuple[str, ...]:
    return dependencies(
        lambda other: metadata[other],
        name,
        TARGET,
        present=lambda other: other in metadata,
        left_out=left_out,
    )


@pytest.mark.parametrize(
    ("distribution", "package"),
    [
        ("torch", "pytorch"),
        ("huggingface-hub", "huggingface_hub"),
        ("Prometheus_Client", "prometheus_client"),
        ("typing.extensions", "typing_extensions"),
        ("oss_harmony", "openai-harmony"),
        ("lm-format-enforcer", "lm-format-enforcer"),
        ("PyYAML", "pyyaml"),
    ],
)
def test_names_are_those_of_conda_forge(distribution: str, package: str) -> None:
    assert conda_name(distribution) == package


@pytest.mark.parametrize(
    ("python", "conda"),
    [
        ("", ""),
        (">=1.0,<2", "<2,>=1.0"),
        ("==1.2.*", "1.2.*"),
        ("!=6.30.*,>=5.29.6", "!=6.30.*,>=5.29.6"),
        ("===1.0", "==1.0"),
        ("~=1.4.2", "~=1.4.2"),
        ("==2.13.0+cpu", "==2.13.0"),
    ],
)
def test_version_constraints_keep_their_meaning(python: str, conda: str) -> None:
    assert version_spec(SpecifierSet(python)) == conda


def test_a_local_version_moves_into_the_build_string() -> None:
    assert split_local("2.13.0+cpu") == ("2.13.0", "cpu")
    assert split_local("2.13.0") == ("2.13.0", None)
    assert match_spec(Requirement("torch==2.13.0+cpu")) == "pytorch ==2.13.0 cpu*"
    assert match_spec(Requirement("torch>=1.10")) == "pytorch >=1.10"
    assert match_spec(Requirement("numpy")) == "numpy"


def test_markers_are_evaluated_for_the_target() -> None:
    metadata = {
        "a": [
            "b; python_version > '3.11'",
            "c; platform_machine == 'x86_64'",
            "d; sys_platform == 'win32'",
            "e; extra == 'x'",
            "f; python_full_version < '3.11.8'",
        ],
        **{name: [] for name in "bcdef"},
    }
    assert translate(metadata, "a") == ("c", "f")


def test_an_extra_brings_what_it_adds_however_deep() -> None:
    metadata = {
        "a": ["b[x]"],
        "b": ["base", "c[y]>=1; extra == 'x'", "a; extra == 'x'"],
        "c": ["d; extra == 'y'", "unwanted; extra == 'z'"],
        "base": [],
        "d": [],
        "unwanted": [],
    }
    # base comes with b itself; a does not depend on itself.
    assert translate(metadata, "a") == ("b", "c >=1", "d")


def test_a_requirement_that_is_not_locked_is_an_error_unless_it_is_left_out() -> None:
    metadata = {"a": ["Torch_Vision>=1"]}
    with pytest.raises(UntranslatableError, match=r"a requires Torch_Vision>=1.*scripts/lock"):
        translate(metadata, "a")
    assert translate(metadata, "a", ("torch-vision",)) == ()
    # What is locked all the same, is needed.
    metadata["torch-vision"] = []
    assert translate(metadata, "a", ("torch-vision",)) == ("torch-vision >=1",)
