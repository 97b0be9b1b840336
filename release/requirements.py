"""Prints what kafkagroup needs with some extras, except its native engine: `./run` gets that one by itself.

    python -m release.requirements dev

pip cannot leave out one dependency, and a clone on a machine without Rust has no other way to install the rest. The
project itself must be installed already, without its dependencies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

# pip's own copy: in a new environment there is nothing else.
from pip._vendor.packaging.requirements import Requirement

PROJECT, NATIVE = "kafkagroup", "kafkagroup-native"


def requirements(lines: Iterable[str], extras: Iterable[str], python: str | None = None) -> Iterator[str]:
    """Yield the requirements that apply to a Python with these extras, and with those that they name.

    Args:
        lines: The project's requirements as in its metadata (`Requires-Dist`).
        extras: Extras of the project.
        python: A minor version such as `3.10`; None: this Python's.
    """
    where = {} if python is None else {"python_version": python}
    parsed = [Requirement(line) for line in lines]
    wanted, new = {""}, set(extras)
    while new:
        wanted |= new
        mine = (one for one in parsed if one.name == PROJECT and _applies(one, new, where))
        named = {name for one in mine for name in one.extras}
        new = named - wanted
    for one in parsed:
        if one.name not in (PROJECT, NATIVE) and _applies(one, wanted, where):
            one.marker = None
            yield str(one)


def _applies(one: Requirement, extras: Iterable[str], where: Mapping[str, str]) -> bool:
    return one.marker is None or any(one.marker.evaluate({**where, "extra": extra}) for extra in extras)


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in requirements(metadata.requires(PROJECT) or (), sys.argv[1:])))
