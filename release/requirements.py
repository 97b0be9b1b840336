"""List the project's requirements without the native engine, so that a cell of the matrix can replace requirements."""

from collections.abc import Iterable, Iterator, Mapping

from packaging.requirements import Requirement

PROJECT, NATIVE = "kafkagroup", "kafkagroup-native"


def requirements(lines: Iterable[str], extras: Iterable[str], python: str | None = None) -> Iterator[str]:
    """Yield the requirements that apply to a Python with these extras, and with the extras that these extras name.

    Args:
        lines: The project's requirements as in its metadata (`Requires-Dist`).
        extras: Extras of the project.
        python: A minor version such as `3.10`; None: the version of this Python.
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
