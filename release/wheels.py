"""Builds the published files into dist/: wheels and sdists of both distributions, with their hashes.

    python -m release.wheels                            everything that one Linux machine can build
    python -m release.wheels pure                       the distribution kafkagroup
    python -m release.wheels x86_64-apple-darwin …      wheels of the native engine for these targets

Without arguments, the command leaves out the targets for which this machine cannot build, and prints the reason. The
command fails if a build fails, or if a named target cannot be built.

A wheel of the native engine contains the licences of the linked crates, and a bill of materials (CycloneDX).
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from release.crates import linked_crates, notices
from release.targets import TARGETS, Target

ROOT = Path(__file__).parents[1]
CRATE = ROOT / "native"
DIST = ROOT / "dist"
SUMS = "SHA256SUMS"
#: The name of the distribution kafkagroup on the command line.
PURE = "pure"
NOTICES = "THIRD-PARTY-LICENSES.txt"
#: Rust's page about the licences of its standard library, which is linked in too: the path in a toolchain, and the name
#: in a wheel.
RUST_NOTICES = Path("share", "doc", "rust", "COPYRIGHT-library.html")
RUST_NOTICES_NAME = "RUST-STANDARD-LIBRARY.html"
#: The limit of a wheel's size. A larger wheel would have to be split into two wheels.
MOST_BYTES = 2_800_000


class CannotBuildError(Exception):
    """This machine cannot build for a target; the message names the missing program or library."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one build.

    Args:
        name: `pure`, or the triple of a target.
        state: The state after the build.
        reason: The reason why the wheel was not built; empty if it was.
    """

    name: str
    state: Literal["built", "left out", "failed"]
    reason: str = ""


def main(asked: Sequence[str]) -> int:
    """Build the named targets, and print each result with its reason. Return 1 if a build failed."""
    if unknown := sorted({*asked} - {PURE} - {target.triple for target in TARGETS}):
        say(f"unknown: {', '.join(unknown)}. Known: {PURE}, {', '.join(target.triple for target in TARGETS)}")
        return 2
    if not asked:
        shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(exist_ok=True)
    outcomes = []
    if not asked or PURE in asked:
        outcomes.append(attempt(PURE, build_pure, named=True))
    outcomes += [
        attempt(target.triple, partial(build, target), named=bool(asked))
        for target in TARGETS
        if target.triple in asked or not asked
    ]
    files = sorted(file for file in DIST.iterdir() if file.name != SUMS)
    (DIST / SUMS).write_text("".join(f"{digest(file)}  {file.name}\n" for file in files))
    say("")
    for file in files:
        say(f"{file.stat().st_size / 1e6:6.2f} MB  {file.name}")
    say("")
    for one in outcomes:
        say(f"{one.state:9}  {one.name}{': ' if one.reason else ''}{one.reason}")
    return 1 if any(one.state == "failed" for one in outcomes) else 0


def attempt(name: str, make: Callable[[], None], *, named: bool) -> Outcome:
    """Run one build, and return its result. A failure does not stop the other builds.

    Args:
        name: The name of the build.
        make: The function that builds.
        named: Whether the command line names this build, so that leaving it out is a failure.
    """
    try:
        make()
    except CannotBuildError as error:
        return Outcome(name, "failed" if named else "left out", str(error))
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        return Outcome(name, "failed", str(error))
    return Outcome(name, "built")


def build_pure() -> None:
    """Build the wheel and the sdist of kafkagroup, and the sdist of the native engine.

    Raises:
        subprocess.CalledProcessError: A tool failed.
    """
    run("-m", "build", "--outdir", str(DIST), str(ROOT))
    run("-m", "maturin", "sdist", "--out", str(DIST), cwd=CRATE)


def build(target: Target) -> None:
    """Build, complete and audit the wheel of one target.

    Raises:
        CannotBuildError: Rust or the linker of this machine does not support the target.
        subprocess.CalledProcessError: A tool failed.
    """
    if target.compatibility is None and not on(target):
        raise CannotBuildError(f"it is built on {target.system} ({target.machine}), see .github/workflows/release.yml")
    if shutil.which("rustc") is None:
        raise CannotBuildError("Rust is not installed (rustc)")
    if not has_standard_library(target.triple):
        raise CannotBuildError(f"Rust has no standard library for this target (rustup target add {target.triple})")
    zig = ["--zig", "--compatibility", target.compatibility] if target.compatibility else []
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "maturin", "build", "--release", "--locked", "--target", target.triple, *zig]
        run(*command, "--out", folder, cwd=CRATE)
        (wheel,) = Path(folder).glob("*.whl")
        shutil.copy(with_licences(wheel, target.triple), DIST / wheel.name)
    audit(DIST / wheel.name, target)


def on(target: Target) -> bool:
    """Return whether this machine is of the target's system and processor."""
    return (sys.platform, platform.machine()) == (target.system, target.machine)


def has_standard_library(triple: str) -> bool:
    """Return whether the Rust of this machine can compile for a target."""
    command = ["rustc", "--print", "target-libdir", "--target", triple]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.returncode == 0 and any(Path(found.stdout.strip()).glob("libstd-*"))


def with_licences(wheel: Path, triple: str) -> Path:
    """Return a copy of a wheel that contains the licences of the project and of the linked crates.

    Raises:
        CannotBuildError: The toolchain lacks the notices of Rust's standard library.
    """
    folder = wheel.parent / "unpacked"
    run("-m", "wheel", "unpack", "--dest", str(folder), str(wheel))
    (information,) = folder.glob("*/*.dist-info")
    texts = {
        "LICENSE": (ROOT / "LICENSE").read_text(),
        NOTICES: notices(information.name.removesuffix(".dist-info"), linked_crates(CRATE / "Cargo.toml", triple)),
        RUST_NOTICES_NAME: rust_notices(),
    }
    for name, text in texts.items():
        (information / "licenses").mkdir(exist_ok=True)
        (information / "licenses" / name).write_text(text)
    for bill in (information / "sboms").glob("*.json"):
        # The bill of materials names the crate by the folder in which it was built.
        bill.write_text(bill.read_text().replace(CRATE.as_uri(), "file:///native"))
    metadata = information / "METADATA"
    metadata.write_text(with_licence_files(metadata.read_text(), texts))
    run("-m", "wheel", "pack", "--dest", str(folder), str(information.parent))
    (packed,) = folder.glob("*.whl")
    return packed


def rust_notices() -> str:
    """Return the copyright notices of Rust's standard library.

    Raises:
        CannotBuildError: The toolchain lacks these notices.
    """
    command = ["rustc", "--print", "sysroot"]
    file = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()) / RUST_NOTICES
    if not file.exists():
        raise CannotBuildError(f"this Rust has no {RUST_NOTICES}, which the toolchains of rustup have")
    return file.read_text()


def with_licence_files(metadata: str, names: Iterable[str]) -> str:
    """Return a wheel's metadata with a `License-File` for each of these names (PEP 639)."""
    head, blank, body = metadata.partition("\n\n")
    lines = [line for line in head.splitlines() if not line.startswith("License-File:")]
    return "\n".join([*lines, *(f"License-File: {name}" for name in names)]) + blank + body


def audit(wheel: Path, target: Target) -> None:
    """Check a wheel's size, paths, bill of materials, use of Python's stable ABI, and symbols of the C library.

    Raises:
        subprocess.CalledProcessError: The wheel needs symbols that its tags do not allow.
        ValueError: The wheel is not for the target, has no bill of materials, names a folder of this machine, or is too
            large.
    """
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{wheel.name} has {size:,} bytes, above {MOST_BYTES:,}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        if named := sorted(folders_named(archive, (ROOT, Path.home(), cargo_home()))):
            raise ValueError(f"{wheel.name} names folders of this machine: {', '.join(named)}")
    if not any(re.search(r"\.dist-info/sboms/.+\.cyclonedx\.json$", name) for name in names):
        raise ValueError(f"{wheel.name} has no bill of materials")
    if f"-abi3-{target.tag}" not in wheel.name:
        raise ValueError(f"{wheel.name} is not for {target.triple}")
    run("-m", "abi3audit", "--strict", "--summary", str(wheel))
    # For a musl wheel, auditwheel needs a system with musl. maturin has checked this wheel in its build.
    if target.tag == "manylinux":
        run("-m", "auditwheel", "show", str(wheel))


def folders_named(archive: zipfile.ZipFile, folders: Iterable[Path]) -> set[str]:
    """Return the folders that the files of a wheel name, each as "file: folder"."""
    wanted = {folder: f"{folder}{os.sep}".encode() for folder in folders}
    contents = {name: archive.read(name) for name in archive.namelist()}
    return {f"{name}: {folder}" for name, data in contents.items() for folder in wanted if wanted[folder] in data}


def cargo_home() -> Path:
    """Return the folder in which Cargo keeps the sources of crates."""
    return Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))


def run(*arguments: str, cwd: Path = ROOT) -> None:
    """Run a module of this Python."""
    # maturin finds zig as a module of the first `python3` on the PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # Without these flags, the messages of panics contain the folders of the machine that built the wheel.
    mapped = f"--remap-path-prefix={cargo_home()}=cargo --remap-path-prefix={ROOT}=kafkagroup"
    flags = f"{os.environ.get('RUSTFLAGS', '')} {mapped}"
    subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        check=True,
        # A release of kafkagroup depends on its native engine: see release/build_hook.py.
        env={**os.environ, "PATH": path, "RUSTFLAGS": flags, "KAFKAGROUP_RELEASE": "1"},
    )


def digest(file: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
