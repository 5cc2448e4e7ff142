# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a network namespace of its own, as `unshare --net` makes it, and counts what it
would have sent.

    unshare --net python network_attempts.py REPORT COMMAND [ARGUMENT …]

There is no network in there but the loopback device. The kernel counts each packet that a process
sends and each that it has no route for, whoever the process is and whatever it makes of the error.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
from pathlib import Path

SIOCSIFFLAGS = 0x8914
IFF_UP = 1
# Of /proc/net/snmp and snmp6.
SENT = ("OutRequests", "OutNoRoutes", "Ip6OutRequests", "Ip6OutNoRoutes")


def loopback_up() -> None:
    """Without it the kernel does not count what it has no source address for."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def counters() -> dict[str, int]:
    """The kernel's counters of this namespace."""
    names, values = [
        line.split()[1:]
        for line in Path("/proc/net/snmp").read_text().splitlines()
        if line.startswith("Ip:")
    ]
    found = dict(zip(names, map(int, values), strict=True))
    for line in Path("/proc/net/snmp6").read_text().splitlines():
        name, value = line.split()
        found[name] = int(value)
    return {name: found[name] for name in SENT}


def main(report: str, *command: str) -> int:
    """Writes {counter: increase} to `report` and returns the command's exit status."""
    loopback_up()
    before = counters()
    status = subprocess.run(command).returncode
    after = counters()
    Path(report).write_text(json.dumps({name: after[name] - before[name] for name in SENT}))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
