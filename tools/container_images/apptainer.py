# SPDX-License-Identifier: Apache-2.0
"""The Apptainer definition that does what a Containerfile of recipes/images does.

Only the instructions that the template uses are known, and any other is refused. Of an image's
user and working directory Apptainer takes the caller's, so those have no counterpart.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from container_images.definitions import DefinitionError

_REFERENCE = re.compile(r"\$\{([A-Z]+)\}")
_MOUNT = re.compile(r"^--mount=\S+ ")
# The quick check of docs/guide.md.
_TEST = (
    "python -c 'import batch_invariant_ops, torch;"
    " print(torch.ops.batch_invariant_ops.npu_matmul_batch_invariant)'"
)


@dataclass
class _Stage:
    name: str
    base: str
    workdir: str = "/"
    files: dict[str, list[str]] = field(default_factory=dict)  # by the stage they come from
    post: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    runscript: str = ""


def instructions(containerfile: str) -> list[tuple[str, str]]:
    """Keyword and argument of each instruction; a continued one keeps its line ends."""
    text = re.sub(r"^#.*\n", "", containerfile, flags=re.MULTILINE)
    text = re.sub(r"\\\n", "\\\0", text)
    found = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(keyword, argument.replace("\0", "\n")) for keyword, _, argument in found]


def definition(containerfile: str) -> str:
    """The text of the Apptainer definition.

    Raises:
        DefinitionError: an instruction has no counterpart here.
    """
    header = [line for line in containerfile.splitlines() if line.startswith("#")]
    arguments: dict[str, str] = {}
    stages: list[_Stage] = []
    for keyword, argument in instructions(containerfile):
        if keyword == "ARG":
            name, _, default = argument.partition("=")
            if default:
                arguments[name] = default
        elif keyword == "FROM":
            base, _, name = argument.partition(" AS ")
            stages.append(_Stage(name or "final", base))
        else:
            _add(stages[-1], keyword, argument)
    defaults = [f"{name}={value}" for name, value in arguments.items()]
    text = "\n".join([*header, "", *(_section_of(stage, defaults) for stage in stages)])
    # A build argument is filled in anywhere; what is left is the shell's.
    names = {"BASE", *arguments}
    return _REFERENCE.sub(
        lambda found: f"{{{{ {found[1]} }}}}" if found[1] in names else found[0], text
    )


def _add(stage: _Stage, keyword: str, argument: str) -> None:
    match keyword:
        case "RUN":
            command = _MOUNT.sub("", argument)
            if not command.startswith("useradd "):
                stage.post.append(f"cd {stage.workdir}\n{command}")
        case "COPY":
            *sources, target = argument.split()
            origin = ""
            if sources[0].startswith("--from="):
                origin = sources.pop(0).removeprefix("--from=")
            for source in sources:
                stage.files.setdefault(origin, []).append(_copied(stage, source, target))
        case "ENV":
            stage.environment.append(f"export {argument}")
        case "LABEL":
            for name, value in re.findall(r'(\S+)="([^"]*)"', argument):
                stage.labels.append(f"{name} {value}")
        case "WORKDIR":
            stage.workdir = argument
        case "ENTRYPOINT":
            stage.runscript = f'exec {" ".join(json.loads(argument))} "$@"'
        case "USER":
            pass
        case _:
            raise DefinitionError(f"no counterpart in Apptainer for {keyword} {argument}")


def _copied(stage: _Stage, source: str, target: str) -> str:
    """A line of %files. Apptainer's target is the copy itself, never the folder to copy into."""
    if target.endswith("./"):
        target = source
    if not target.startswith("/"):
        target = f"{stage.workdir}/{target}"
    return f"{source} {target}"


def _section_of(stage: _Stage, defaults: list[str]) -> str:
    sections = [f"Bootstrap: docker\nFrom: {stage.base}\nStage: {stage.name}\n"]
    if defaults:
        sections.append(_section("arguments", defaults))
    for origin, lines in stage.files.items():
        sections.append(_section(f"files from {origin}" if origin else "files", lines))
    # Apptainer's shell goes on after a command that failed.
    sections.append(_section("post", ["set -eu", *"\n".join(stage.post).splitlines()]))
    for name, lines in (("environment", stage.environment), ("labels", stage.labels)):
        if lines:
            sections.append(_section(name, lines))
    if stage.runscript:
        sections.append(_section("runscript", [stage.runscript]))
        sections.append(_section("test", [*stage.environment, _TEST]))
    return "\n".join(sections)


def _section(name: str, lines: list[str]) -> str:
    return f"%{name}\n" + "".join(f"    {line}\n" for line in lines)
