# SPDX-License-Identifier: Apache-2.0
"""Files that are almost the one that was made: what a bad disk, network or editor makes of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

Mutation = Callable[[bytes, bytes, random.Random], bytes]


def _block(data: bytes, generator: random.Random) -> int:
    """The size of a block of it: as of an editor, a disk, a page; at most a quarter."""
    return min(generator.choice((16, 64, 512, 4096)), len(data) // 4)


def flipped(data: bytes, _other: bytes, generator: random.Random) -> bytes:
    """One to eight wrong bytes."""
    changed = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 8))):
        changed[generator.randrange(len(data))] ^= generator.randrange(1, 256)
    return bytes(changed)


def truncated(data: bytes, _other: bytes, generator: random.Random) -> bytes:
    """The beginning of it."""
    return data[: generator.randrange(len(data) // 50, len(data))]


def inserted(data: bytes, _other: bytes, generator: random.Random) -> bytes:
    """Bytes in between that do not belong there."""
    at = generator.randrange(len(data))
    return data[:at] + generator.randbytes(generator.choice((1, 1, 16, 512))) + data[at:]


def swapped(data: bytes, _other: bytes, generator: random.Random) -> bytes:
    """Two blocks in each other's place."""
    size = _block(data, generator)
    first, second = sorted(generator.sample(range(0, len(data) - 2 * size, size), 2))
    middle = data[first + size : second]
    swap = data[second : second + size] + middle + data[first : first + size]
    return data[:first] + swap + data[second + size :]


def blanked(data: bytes, _other: bytes, generator: random.Random) -> bytes:
    """A block of zeros, as a file has that was not written to the end."""
    size = _block(data, generator)
    at = generator.randrange(0, len(data) - size)
    return data[:at] + bytes(size) + data[at + size :]


def spliced(data: bytes, other: bytes, generator: random.Random) -> bytes:
    """The beginning of one file and the end of another of its kind."""
    share = generator.random()
    return data[: int(len(data) * share)] + other[int(len(other) * share) :]


def appended(data: bytes, other: bytes, generator: random.Random) -> bytes:
    """More than there was: noise, text, or a second file."""
    tail = (b"\n", b"\0", generator.randbytes(100), b"echo\n" * 20, other[:4096])
    return data + generator.choice(tail)


def text_edited(data: bytes, _other: bytes, generator: random.Random) -> bytes:
    """A line of its text, where it begins with any, missing, twice or with another number."""
    end = data.find(b"\nexit 1\n}\n")
    lines = data[: max(end, 0)].splitlines(keepends=True)
    numbers = [index for index, line in enumerate(lines) if re.search(rb"=.*[0-9]", line)]
    if not numbers:
        return flipped(data, b"", generator)
    choice = generator.randrange(3)
    at = generator.choice(numbers) if choice == 2 else generator.randrange(2, len(lines))
    if choice == 0:
        del lines[at]
    elif choice == 1:
        lines.insert(at, lines[at])
    else:
        digit = generator.choice([*re.finditer(rb"[0-9]", lines[at])]).start()
        new = b"%d" % ((lines[at][digit] - 48 + generator.randrange(1, 10)) % 10)
        lines[at] = lines[at][:digit] + new + lines[at][digit + 1 :]
    return b"".join(lines) + data[end:]


KINDS: tuple[Mutation, ...] = (
    *(flipped, truncated, inserted, swapped, blanked, spliced, appended, text_edited),
)


def mutations(data: bytes, other: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` of them, of each kind in turn and neither file itself; the same for the same seed.

    Args:
        data: the good file.
        other: another good file of its kind.
        count: how many.
        seed: of the random choices.

    Yields:
        What it is called, and its bytes.
    """
    generator = random.Random(seed)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        changed = data
        while changed in (data, other):
            changed = kind(data, other, generator)
        yield f"{number}: {kind.__name__}", changed
