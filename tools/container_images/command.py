# SPDX-License-Identifier: Apache-2.0
"""The command `scripts/images`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from container_images.apptainer import definition
from container_images.definitions import IMAGES, DefinitionError, images


def definitions() -> dict[Path, str]:
    """The text of each definition, by its path below recipes/images.

    Raises:
        DefinitionError, OSError, ValueError: they cannot be made.
    """
    template = (IMAGES / "Containerfile.template").read_text(encoding="utf-8")
    texts = {}
    for image in images():
        containerfile = image.containerfile(template)
        texts[Path(image.name) / "Containerfile"] = containerfile
        texts[Path(image.name) / "apptainer.def"] = definition(containerfile)
    return texts


def differing(folder: Path, texts: dict[Path, str]) -> list[str]:
    """What is missing below the folder, is another text, or belongs to no image."""
    there = {
        path.relative_to(folder)
        for name in ("Containerfile", "apptainer.def")
        for path in folder.glob(f"*/{name}")
    }
    wrong = there - set(texts)
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            wrong.add(name)
    return sorted(map(str, wrong))


def output_folder(text: str) -> Path:
    """The folder that --output names.

    Raises:
        DefinitionError: it is none, or one in a place that does not exist.
    """
    path = Path(text)
    if not text or (path.exists() and not path.is_dir()):
        found = "a file" if text else "no name"
        raise DefinitionError(f"--output {text!r}: expected a folder, found {found}; name another")
    if not path.absolute().parent.is_dir():
        raise DefinitionError(
            f"--output {text}: there is no folder {path.parent} to make it in; make that or name"
            " another"
        )
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 with one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="images",
        description="Make the Containerfiles and Apptainer definitions of recipes/images from its"
        " template, images.toml and soc.toml.",
        epilog="Example: ./scripts/images --check",
    )
    parser.add_argument(
        "--output",
        default=str(IMAGES),
        metavar="DIR",
        help="write below DIR, or check there (default: recipes/images)",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if what is there is another"
    )
    parser.add_argument("--json", action="store_true", help="print the paths as a JSON list")
    options = parser.parse_args(arguments)
    try:
        output = output_folder(options.output)
        texts = definitions()
        if options.check and (wrong := differing(output, texts)):
            command = ["./scripts/images"]
            command += [] if output == IMAGES else ["--output", str(output)]
            raise DefinitionError(
                f"not what the template makes: {', '.join(wrong)}; type {shlex.join(command)}"
            )
        for name, text in texts.items():
            path = output / name
            if not options.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        paths = [str(output / name) for name in texts]
        if options.json:
            print(json.dumps(paths))
        elif options.check:
            print(f"images: {len(paths)} definitions are what the template makes")
        else:
            print("\n".join(paths))
    except (DefinitionError, OSError, ValueError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
