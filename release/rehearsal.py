"""Rehearse a release without publishing: build a tag, serve its wheels as an index, install them, and run the demo.

    python -m release.rehearsal                     HEAD, with each Python of this machine
    python -m release.rehearsal v0.1.0 3.11 3.13    a tag, which must name the version, with these Pythons
    python -m release.rehearsal --dist FOLDER       existing wheels

The rehearsal uses a temporary folder. kafkagroup and its native engine come from the local index, and all other
packages come from pip's default index, as for users of the release. The rehearsal fails if pip takes kafkagroup or its
engine from another index.
"""

import functools
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from release.matrix import find_python, pip
from release.wheels import digest

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PROJECTS = ("kafkagroup", "kafkagroup-native")


class RehearsalError(Exception):
    """A step has a result with which a user could not work; the message describes the result."""


def main(arguments: Sequence[str]) -> int:
    """Rehearse, print a line for each step, and return 1 if a step failed."""
    pythons = [word for word in arguments if re.fullmatch(r"3\.\d+", word)] or PYTHONS
    other = [word for word in arguments if word not in pythons]
    dist = Path(other[1]).resolve() if other[:1] == ["--dist"] else None
    tag = other[0] if other and dist is None else None
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        folder = Path(name)
        try:
            source = clone(tag, folder / "source")
            dist = dist or built(source)
            with served(make_index(dist, folder / "index")) as address:
                found = {minor: find_python(minor) for minor in pythons}
                for minor, python in found.items():
                    if python is None:
                        say(f"Python {minor}: not run, it is not on this machine")
                    else:
                        show = install(python, address, folder / minor)
                        demonstrate(folder / minor, source)
                        say(f"Python {minor}: {show}; the demo ran")
        except (RehearsalError, subprocess.CalledProcessError) as error:
            say(f"failed: {error}")
            say((getattr(error, "stderr", None) or "").strip())
            return 1
    if not any(found.values()):
        say("failed: none of these Pythons is on this machine")
        return 1
    return 0


def clone(tag: str | None, folder: Path) -> Path:
    """Return a clone of a tag or of HEAD, as CI would check it out.

    Raises:
        RehearsalError: The tag does not have the name of the version in its code.
    """
    git = ["git", "clone", "--quiet", "--config", "advice.detachedHead=false"]
    git += ["--branch", tag] if tag else []
    subprocess.run([*git, ROOT.as_uri(), str(folder)], check=True, capture_output=True, text=True)
    version = re.findall(r'^__version__ = "(.+)"$', (folder / "kafka_source" / "version.py").read_text(), re.MULTILINE)
    if tag and tag != f"v{version[0]}":
        raise RehearsalError(f"the tag {tag} has version {version[0]}; its name must be v{version[0]}")
    say(f"cloned {tag or 'HEAD'}, version {version[0]}")
    return folder


def built(source: Path) -> Path:
    """Build everything that this machine can build, from the clone alone, and return the folder of files.

    Raises:
        subprocess.CalledProcessError: A build failed. A wheel that this machine cannot build is no failure.
    """
    subprocess.run([sys.executable, "-m", "release.wheels"], cwd=source, check=True)
    return source / "dist"


def make_index(dist: Path, folder: Path) -> Path:
    """Return a folder that a web server can serve as an index (PEP 503).

    Raises:
        RehearsalError: `dist` lacks a wheel of kafkagroup.
    """
    for project in PROJECTS:
        page = folder / project
        page.mkdir(parents=True)
        files = sorted(file for file in dist.iterdir() if is_of(project, file))
        for file in files:
            shutil.copy(file, page / file.name)
        links = (f'<a href="{html.escape(file.name)}#sha256={digest(file)}">{file.name}</a>' for file in files)
        (page / "index.html").write_text("<!DOCTYPE html>\n" + "\n".join(links))
    if not any((folder / "kafkagroup").glob("*.whl")):
        raise RehearsalError(f"{dist} has no wheel of kafkagroup")
    return folder


def is_of(project: str, file: Path) -> bool:
    """Return whether a file of dist/ is a wheel or an sdist of a project."""
    return re.match(re.escape(project.replace("-", "_")) + r"-\d.*(\.whl|\.tar\.gz)$", file.name) is not None


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback, and yield its address."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def install(python: str, address: str, folder: Path) -> str:
    """Install kafkagroup and its demo's requirements in a new environment; return the installed files of `PROJECTS`.

    Raises:
        RehearsalError: A file is not from the local index, or the native engine cannot serve.
        subprocess.CalledProcessError: pip failed.
    """
    subprocess.run([python, "-m", "venv", str(folder)], check=True, capture_output=True, text=True)
    interpreter, report = folder / "bin" / "python", folder / "report.json"
    # Old versions of pip write no report.
    pip(interpreter, "install", "--upgrade", "pip")
    arguments = ["--extra-index-url", address, "--report", str(report), "--only-binary", ",".join(PROJECTS)]
    pip(interpreter, "install", *arguments, "kafkagroup[try]")
    taken = {
        one["metadata"]["name"]: one["download_info"]
        for one in json.loads(report.read_text())["install"]
        if one["metadata"]["name"] in PROJECTS
    }
    for name, download in taken.items():
        if not download["url"].startswith(address):
            raise RehearsalError(f"pip took {name} from {download['url']}, and not from the local index")
    code = "from kafka_source.engine_selection import why_not_native; print(why_not_native() or '')"
    reason = subprocess.run(
        [str(interpreter), "-c", code], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()
    if reason:
        raise RehearsalError(f"the native engine does not serve: {reason}")
    return ", ".join(Path(download["url"]).name for download in taken.values())


def demonstrate(environment: Path, source: Path) -> None:
    """Run the demo with the packages of an environment. Only the demo's program comes from the clone.

    Raises:
        subprocess.CalledProcessError: The demo failed; the error contains its output.
    """
    program = environment / "program"
    shutil.copytree(source / "examples", program / "examples")
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    subprocess.run(
        [str(environment / "bin" / "python"), "-m", "examples.demo"],
        cwd=program,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )


def say(line: str) -> None:
    """Print a line, and flush it."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
