"""List the crates that Cargo links into the native engine for one target, with their licences."""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The files of a crate that hold licences or notices.
_TEXTS = re.compile(r"^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
#: The C library in zstd-sys has two licences to choose from. This is the file of the chosen licence.
_ZSTD = Path("zstd", "LICENSE")


@dataclass(frozen=True, slots=True, order=True)
class Crate:
    """A crate that is linked in.

    Args:
        name: The crate's name.
        version: Its version.
        licence: Its licence as an SPDX expression.
        repository: The address of its sources.
        folder: The folder with its unpacked sources.
    """

    name: str
    version: str
    licence: str
    repository: str
    folder: Path

    def texts(self) -> list[str]:
        """Return the texts of its licences and notices."""
        files = [file for file in sorted(self.folder.iterdir()) if file.is_file() and _TEXTS.match(file.name)]
        if (self.folder / _ZSTD).is_file():
            files.append(self.folder / _ZSTD)
        return [file.read_text(errors="replace").strip() for file in files]


def linked_crates(manifest: Path, triple: str) -> list[Crate]:
    """Return the crates that are linked into a crate for a target, without this crate.

    Args:
        manifest: The crate's Cargo.toml.
        triple: The target.

    Raises:
        subprocess.CalledProcessError: Cargo failed.
    """
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", triple]
    said = subprocess.run([*command, "--manifest-path", str(manifest)], check=True, stdout=subprocess.PIPE, text=True)
    return linked(json.loads(said.stdout))


def linked(metadata: Mapping[str, Any]) -> list[Crate]:
    """Return the crates that are linked in, from the output of `cargo metadata`.

    Build dependencies and procedural macros run in the compiler and are not linked in.
    """
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root: str = metadata["resolve"]["root"]
    found, new = {root}, {root}
    while new:
        named = {
            dependency["pkg"]
            for one in new
            for dependency in nodes[one]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        }
        new = {one for one in named - found if not _is_macro(packages[one])}
        found |= new
    return sorted(_crate(packages[one]) for one in found - {root})


def notices(title: str, crates: Sequence[Crate]) -> str:
    """Return one text with the licences of all crates; a text that several crates have appears once."""
    users: dict[str, list[Crate]] = {}
    for crate in crates:
        for text in crate.texts():
            users.setdefault(text, []).append(crate)
    parts = [f"{title} contains this software:", *_lines(crates)]
    for text, having in users.items():
        parts += ["", "=" * 100, *_lines(having), "", text]
    return "\n".join(parts) + "\n"


def _lines(crates: Iterable[Crate]) -> list[str]:
    return [f"- {one.name} {one.version} ({one.licence}) {one.repository}".rstrip() for one in crates]


def _is_macro(package: Mapping[str, Any]) -> bool:
    return any("proc-macro" in target["kind"] for target in package["targets"])


def _crate(package: Mapping[str, Any]) -> Crate:
    # In Cargo's older form, a slash means "or".
    licence = (package["license"] or "see its sources").replace("/", " OR ")
    folder = Path(package["manifest_path"]).parent
    return Crate(package["name"], package["version"], licence, package["repository"] or "", folder)
