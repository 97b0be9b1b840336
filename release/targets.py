"""The platforms for which the native engine has a wheel, and where each wheel is built."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One wheel of the native engine, for every CPython from 3.10 on (`abi3`).

    Args:
        triple: Rust's name of the target.
        tag: The beginning of the wheel's platform tag.
        system: `sys_platform` in environment markers.
        machine: `platform_machine` in environment markers.
        compatibility: maturin's `--compatibility`; None: only the workflow builds the wheel, on the target's system.
    """

    triple: str
    tag: str
    system: str
    machine: str
    compatibility: str | None = None


#: `./run wheels` builds the targets with a `compatibility` on one Linux machine, with zig. The workflow release.yml
#: builds all targets. No environment marker excludes musl, so without musl wheels pip would build the sdist.
TARGETS = (
    Target("x86_64-unknown-linux-gnu", "manylinux", "linux", "x86_64", "manylinux2014"),
    Target("aarch64-unknown-linux-gnu", "manylinux", "linux", "aarch64", "manylinux2014"),
    Target("x86_64-unknown-linux-musl", "musllinux", "linux", "x86_64", "musllinux_1_2"),
    Target("aarch64-unknown-linux-musl", "musllinux", "linux", "aarch64", "musllinux_1_2"),
    Target("x86_64-apple-darwin", "macosx", "darwin", "x86_64"),
    Target("aarch64-apple-darwin", "macosx", "darwin", "arm64"),
    Target("x86_64-pc-windows-msvc", "win", "win32", "AMD64"),
)


def native_requirements(version: str) -> list[str]:
    """Return the requirements of the native engine: the same version, on each platform with a wheel.

    On other platforms, pip would try to build the engine's Rust code.
    """
    systems = dict.fromkeys((target.system, target.machine) for target in TARGETS)
    return [
        f"kafkagroup-native=={version}; implementation_name == 'cpython' and sys_platform == '{system}' "
        f"and platform_machine == '{machine}'"
        for system, machine in systems
    ]
