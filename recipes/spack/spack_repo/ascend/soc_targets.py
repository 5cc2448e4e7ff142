# SPDX-License-Identifier: Apache-2.0
"""Makes `target=910b` and the other SoC names mean something to Spack.

`target` is Spack's reserved key for the processor, and its values are archspec's. A SoC's host has
a processor of its own, so each SoC name becomes a child of this machine's microarchitecture: what
runs here runs there, and not the other way round. It has no effect on code generation: the compiler
flags are those of the architecture family.

Two things are added to Spack in memory, when a recipe of this repository is first imported:

1. the names, to archspec's table (`register`);
2. for a request that names one, and for no other, the name to what the solver may choose, and the
   rule that only packages with a `soc` variant may have it (`admit_to_solver`). Without the request
   the solver would pick a SoC by itself to escape the conflict of `soc=none`; without the rule
   dependencies would follow their dependent and be built for "910b".

For a request that names no SoC at all, the solver may not answer with one that is installed: it
would take any, rather than say that the SoC is missing.

Where a Spack has neither in the form expected here, nothing is changed and a sentence says what to
use instead.
"""

import functools
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Sequence

from spack_repo.ascend import soc_table

EXTENSION = os.path.join(soc_table.TREE, "recipes", "spack", "archspec")


def compiler_entries(family: Any) -> Dict[str, List[Dict[str, str]]]:
    """The compiler flags of an architecture family under the family's own name."""
    return {
        compiler: [dict(entry, name=entry.get("name", family.name)) for entry in entries]
        for compiler, entries in family.compilers.items()
    }


def register(cpu: Any, rows: Sequence[soc_table.Soc]) -> List[str]:
    """Adds the `target=` names of `rows` to `cpu`, archspec's module; returns the names."""
    host = cpu.host()
    names = []
    for row in rows:
        for name in row.targets:
            # Vendor "generic" makes Spack store the name alone. The feature keeps archspec from
            # taking the entry for this machine's processor, and SoCs from being compatible.
            cpu.TARGETS[name] = cpu.Microarchitecture(
                name,
                parents=[host],
                vendor="generic",
                features={row.name},
                compilers=compiler_entries(host.family),
            )
            names.append(name)
    return names


def requested(specs: Iterable[Any], names: Sequence[str]) -> List[str]:
    """Those of `names` that abstract `specs`, or a dependency they spell out, have as target."""
    found = {
        str(node.architecture.target)
        for spec in specs
        for node in spec.traverse()
        if node.architecture and node.architecture.target
    }
    return [name for name in names if name in found]


def names_a_soc(specs: Iterable[Any], names: Sequence[str]) -> bool:
    """Whether abstract `specs` say `soc=` or have one of `names` as target, anywhere in them."""
    return bool(requested(specs, names)) or any(
        "soc" in node.variants for spec in specs for node in spec.traverse()
    )


def admit_to_solver(
    setup: Any, cpu: Any, names: Sequence[str], carries_soc: Callable[[str], bool]
) -> None:
    """Wraps the method of the solver's set-up that states which targets exist.

    Args:
        setup: Spack's `SpackSolverSetup`.
        cpu: archspec's module.
        names: the registered SoC names.
        carries_soc: whether the package of this name may have one of them as its target.
    """
    original = setup.target_defaults

    @functools.wraps(original)
    def target_defaults(self: Any, specs: Sequence[Any]) -> Any:
        if not names_a_soc(specs, names):
            any_soc = ':- attr("variant_value", node(_, "{}"), "soc", Soc), Soc != "none".'
            for package in sorted({spec.name for spec in specs if spec.name in self.pkgs}):
                if carries_soc(package):
                    self.gen.append(any_soc.format(package))
        chosen = requested(specs, names)
        if not chosen:
            return original(self, specs)
        candidates = self.possible_graph.candidate_targets
        self.possible_graph.candidate_targets = lambda: [
            *candidates(),
            *(cpu.TARGETS[name] for name in chosen),
        ]
        try:
            result = original(self, specs)
        finally:
            self.possible_graph.candidate_targets = candidates
        for package in sorted(filter(carries_soc, self.pkgs)):
            self.gen.append('soc_package("{}").'.format(package))
        for name in chosen:
            self.gen.append(
                ':- attr("node_target", node(_, Package), "{}"), not soc_package(Package).'.format(
                    name
                )
            )
        return result

    setup.target_defaults = target_defaults


def install(carries_soc: Callable[[str], bool]) -> None:
    """Registers the names once in this process, or warns that `soc=` has to be used."""
    from spack.package import tty

    try:
        try:
            import spack.vendor.archspec.cpu as cpu
        except ImportError:
            import archspec.cpu as cpu
        from spack.solver.asp import SpackSolverSetup

        if getattr(SpackSolverSetup.target_defaults, "__wrapped__", None):
            return
        names = register(cpu, soc_table.rows())
        admit_to_solver(SpackSolverSetup, cpu, names, carries_soc)
    except (ImportError, AttributeError, TypeError) as error:
        tty.warn(
            "target=<SoC> is not available with this Spack ({}): use soc=<SoC>, or the archspec "
            "extension in {}".format(re.sub(r"\s+", " ", str(error)), EXTENSION)
        )
