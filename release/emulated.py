"""Run the native kernel's tests with the aarch64 wheel of dist/ in an emulator, on an x86-64 Debian without root.

    python -m release.emulated            tests/unit/native, except tests that need a second process
    python -m release.emulated -k codec   arguments go to pytest

This module unpacks the emulator (qemu-user) and an aarch64 Python from Debian's packages into the folder `.emulated`.
The folder is kept, and no package is installed. pyarrow and the Kafka clients come from the index, as wheels for
aarch64.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("KAFKAGROUP_EMULATED", ROOT / ".emulated"))
DIST = ROOT / "dist"

#: Debian's packages. The static emulator uses no library of this machine.
DEBIAN = ("qemu-user-static:amd64", "python3:arm64", "libstdc++6:arm64")
#: The tests' packages, with the versions that the project requires.
PACKAGES = (
    "pyarrow>=15",
    "confluent-kafka>=2.12,<3",
    # The fake broker of the tests uses the messages of kafka-python.
    "kafka-python>=3.0.8,<3.1",
    "pytest",
    "pytest-timeout",
    "hypothesis",
)
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")
#: Packages without a compiled part: this environment's are used.
SPARK = ("pyspark", "py4j")
#: These tests start another Python process. This needs a Linux kernel that starts the emulator (binfmt_misc).
NOT_HERE = (
    "tests/unit/native/test_native_stub.py",
    "tests/unit/native/test_native_encode.py::test_the_memory_of_batches_that_were_taken_serves_the_next_ones",
)
SHOW = """
import platform, pyarrow, kafkagroup_native as kernel
print("Python", platform.python_version(), "on", platform.machine(), "with", *platform.libc_ver())
print("pyarrow", pyarrow.__version__, "and kafkagroup_native", kernel.__version__, "interface", kernel.INTERFACE)
"""


class CannotEmulateError(Exception):
    """This machine lacks a program, a file or a connection; the message names it."""


def main(arguments: Sequence[str]) -> int:
    """Prepare the folder, load the kernel and show its version, and run its tests. Return pytest's exit code."""
    try:
        wheel, machine = aarch64_wheel(), debian()
    except CannotEmulateError as error:
        print(f"not run: {error}")
        return 2
    python = [str(machine / "usr" / "bin" / "qemu-aarch64-static"), str(machine / "usr" / "bin" / "python3")]
    environment = {**os.environ, "QEMU_LD_PREFIX": str(machine), "PYTHONDONTWRITEBYTECODE": "1"}
    asked = [*python, "-c", "import sys; print(sys.version_info[0], sys.version_info[1], sep='.')"]
    version = subprocess.run(asked, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, packages(wheel, version))))
    # If the native kernel cannot be loaded, the tests must fail, and not be skipped.
    environment["KAFKAGROUP_TEST_NATIVE"] = "1"
    run([*python, "-c", SHOW], environment)
    tests = ["tests/unit/native", *(word for test in NOT_HERE for word in ("--deselect", test)), *arguments]
    command = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def aarch64_wheel() -> Path:
    """Return the wheel that `./run wheels` has built for aarch64 and glibc.

    Raises:
        CannotEmulateError: The wheel does not exist.
    """
    found = sorted(DIST.glob("kafkagroup_native-*-manylinux*aarch64.whl"))
    if not found:
        raise CannotEmulateError("dist/ has no manylinux wheel for aarch64; ./run wheels builds it")
    return found[-1]


def debian() -> Path:
    """Return the folder with the emulator and an aarch64 Python. The first call creates the folder.

    Raises:
        CannotEmulateError: This machine does not run Debian, or cannot reach Debian's archive.
    """
    machine, state = FOLDER / "machine", FOLDER / "apt"
    if machine.exists():
        return machine
    if missing := [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]:
        raise CannotEmulateError(f"this machine has no {' and no '.join(missing)}, which Debian has")
    apt = ["apt-get", *private(state), "--quiet", "--yes", "--no-install-recommends"]
    try:
        run([*apt, "update"])
        run([*apt, "--download-only", "install", *DEBIAN])
    except subprocess.CalledProcessError as error:
        raise CannotEmulateError(f"Debian's packages could not be downloaded: {error}") from error
    half = FOLDER / "half"
    shutil.rmtree(half, ignore_errors=True)
    for package in sorted((state / "cache" / "archives").glob("*.deb")):
        run(["dpkg", "-x", str(package), str(half)])
    return half.rename(machine)


def private(state: Path) -> list[str]:
    """Return options of apt: enable aarch64, treat all packages as not installed, and write into one folder only."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = (
        f"Dir::State={state}",
        f"Dir::State::status={state / 'status'}",
        f"Dir::Cache={state / 'cache'}",
        "APT::Architecture=amd64",
        "APT::Architectures::=amd64",
        "APT::Architectures::=arm64",
        "APT::Sandbox::User=root",
        "Debug::NoLocking=1",
    )
    return [word for setting in settings for word in ("-o", setting)]


def packages(wheel: Path, version: str) -> Path:
    """Return a folder for `PYTHONPATH` with the native kernel and the packages that the tests import.

    Args:
        wheel: The wheel of the kernel. It is unpacked in each run, because a new wheel may have the same version.
        version: The minor version of the aarch64 Python.
    """
    folder = FOLDER / f"packages-{version}"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--target", str(folder)]
    system = [word for platform in PLATFORMS for word in ("--platform", platform)]
    only = ["--only-binary", ":all:", *system, "--python-version", version, "--implementation", "cp"]
    abis = [word for abi in (f"cp{version.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)]
    if not folder.exists():
        run([*pip, *only, *abis, *PACKAGES])
        for name in SPARK:
            found = importlib.util.find_spec(name)
            if found is not None and found.origin is not None:
                (folder / name).symlink_to(Path(found.origin).parent)
    run([*pip, *only, *abis, "--no-deps", "--no-index", "--upgrade", str(wheel)])
    return folder


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command.

    Raises:
        subprocess.CalledProcessError: The command failed.
    """
    subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
