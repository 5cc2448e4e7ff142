# SPDX-License-Identifier: Apache-2.0
"""The virtual package `__ascend`: version = CANN's, build = the machine's SoC."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterator

from conda.auxlib import NULL
from conda.models.records import PackageRecord
from conda.plugins import hookimpl
from conda.plugins.types import CondaVirtualPackage

from .soc import cann, machine, resolve
from .soc.soc_table import SocError, UnknownSocError, UnsupportedSocError

log = logging.getLogger(__name__)

# Builds of `__ascend` that no package asks for: the solver refuses every SoC, cpu included.
UNSUPPORTED = "unsupported"
UNIDENTIFIED = "unidentified"


@functools.cache
def machines_soc() -> object:
    """The SoC of the machine's NPU; NULL, which is no package, where there is no NPU.

    A machine whose NPU is not identified or not supported is told so, once, and gets neither an
    NPU's packages nor, silently, those of a machine without one.
    """
    if not machine.devices():
        return NULL
    try:
        return machine.identify().soc.name
    except (UnsupportedSocError, UnknownSocError) as error:
        found, reason = UNSUPPORTED, error
    except SocError as error:
        found, reason = UNIDENTIFIED, error
    log.warning("__ascend is %r: %s; CONDA_OVERRIDE_ASCEND=<SoC> overrides it", found, reason)
    return found


@functools.cache
def cann_version() -> str | None:
    """The version of the machine's CANN in conda's spelling; None, which conda makes 0: none."""
    try:
        version = cann.find().version
    except (SocError, OSError):
        return None
    return re.sub(r"[-+]", ".", version.lower())


class AscendVirtualPackage(CondaVirtualPackage):
    """conda's own override replaces the build; any spelling of a SoC does, and `cpu` is no NPU."""

    def to_virtual_package(self) -> PackageRecord | object:
        record = super().to_virtual_package()
        if record is NULL:
            return NULL
        try:
            soc = resolve(record.build)
        except SocError as error:
            if record.build not in (UNSUPPORTED, UNIDENTIFIED):
                log.warning("CONDA_OVERRIDE_ASCEND: %s", error)
            return record
        return (
            PackageRecord.virtual_package(record.name, record.version, soc.name)
            if soc.is_npu
            else NULL
        )


@hookimpl
def conda_virtual_packages() -> Iterator[CondaVirtualPackage]:
    """conda's hook."""
    yield AscendVirtualPackage(
        name="ascend", version=cann_version, build=machines_soc, override_entity="build"
    )
