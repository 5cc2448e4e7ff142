# SPDX-License-Identifier: Apache-2.0
#
# Toolchain: AArch64 by Debian's cross compiler (g++-aarch64-linux-gnu), its programs run under
# user-mode emulation (qemu-user).
#   cmake -S csrc -B build --toolchain cmake/aarch64-linux-gnu.cmake -DBI_SOC=cpu -DBI_BUILD_TESTS=ON
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
