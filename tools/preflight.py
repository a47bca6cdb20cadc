"""Says whether this machine can run the project, before anything is downloaded.

Three lines: Python, machine, disk. A line that says "no" also says what to do, and the exit status is then 1.
Written for old Pythons too, because an old Python is what it often has to speak about: no f-strings, no annotations.
"""

import os
import platform
import shutil
import sys

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
OLDEST_GLIBC = (2, 35)
OLDEST_MACOS = 14
NEEDED_DISK_BYTES = 3 * 10**9


def check_python(version):
    said = "Python " + ".".join(str(part) for part in version)
    if OLDEST_PYTHON <= tuple(version[:2]) <= NEWEST_PYTHON:
        return True, said
    advice = "it has to be 3.11 to 3.14; install one and name it: make env PYTHON=/path/to/python3.12"
    return False, said + ": " + advice


def check_machine(system, machine, release):
    """`release` is the macOS version, or what the C library says of itself ("" where it says nothing)."""
    if system == "Darwin":
        return check_mac(machine, release)
    if system != "Linux":
        return False, system + ": only Linux and macOS are supported; a virtual machine with Linux will do"
    if machine not in ("x86_64", "aarch64"):
        return False, "Linux on " + machine + ": MLX needs x86_64 or aarch64, and a 64-bit Python"
    name, _, number = release.partition(" ")
    if name != "glibc" or numbers(number) < OLDEST_GLIBC:
        found = release or "a C library that is not glibc (musl?)"
        return False, "Linux with " + found + ": MLX needs glibc 2.35; use Debian 12, Ubuntu 22.04 or newer"
    return True, "Linux on " + machine + ", " + release


def check_mac(machine, release):
    if machine != "arm64":
        return False, "macOS on " + machine + ": MLX needs Apple silicon, and a Python built for arm64"
    if numbers(release) < (OLDEST_MACOS,):
        return False, "macOS " + release + ": MLX needs macOS 14; update in System Settings, General, Software Update"
    return True, "macOS " + release + " on arm64"


def check_disk(free_bytes, folder):
    said = "%.1f GB free in %s" % (free_bytes / 1e9, folder)
    if free_bytes >= NEEDED_DISK_BYTES:
        return True, said
    needed = ": %d GB are needed; free some, or move the project to a larger disk" % (NEEDED_DISK_BYTES // 10**9)
    return False, said + needed


def numbers(version):
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def c_library():
    try:
        return os.confstr(2) or ""  # 2 is _CS_GNU_LIBC_VERSION; old Pythons do not know the name
    except (AttributeError, ValueError, OSError):  # nor does musl know the number
        return ""


def free_bytes(folder):
    if hasattr(shutil, "disk_usage"):
        return shutil.disk_usage(folder).free
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def main():
    system = platform.system()
    release = platform.mac_ver()[0] if system == "Darwin" else c_library()
    folder = os.getcwd()
    lines = [
        check_python(sys.version_info[:3]),
        check_machine(system, platform.machine(), release),
        check_disk(free_bytes(folder), folder),
    ]
    for good, said in lines:
        sys.stderr.write("%s  %s\n" % ("ok" if good else "no", said))
    return 0 if all(good for good, _ in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
