"""The modules of the Rust kernel import each other in one direction only, as the packages of Python do."""

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "native" / "src"

Module = tuple[str, ...]  # ("python", "errors"); () is the crate's root

# Comments, strings (raw ones too) and characters: they may hold what looks like a path.
NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'""", re.DOTALL)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{")
CHILD = re.compile(r"\bmod\s+(\w+)\s*;")
IMPORT = re.compile(r"\buse\s+([^;]+);")
INLINE = re.compile(r"(?<![\w:])\w+(?:::\w+)+")


def modules(sources: Path) -> dict[Module, str]:
    """The text of each module below the folder `sources` of a crate."""
    found = {}
    for file in sources.rglob("*.rs"):
        *folders, name = file.relative_to(sources).with_suffix("").parts
        found[tuple(folders) if name in ("lib", "mod") else (*folders, name)] = file.read_text()
    return found


def without_tests(code: str) -> str:
    """`code` without its test modules, which may import whatever they test together."""
    while (start := TESTS.search(code)) is not None:
        depth, end = 1, start.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        code = code[: start.start()] + code[end:]
    return code


def expanded(tree: str) -> Iterator[str]:
    """Each path of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        yield head.split(" as ")[0].strip()
        return
    depth, part = 0, ""
    for char in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            if part.strip():
                yield from (head + path for path in expanded(part))
            part = ""
        else:
            part += char


def imports(module: Module, text: str, known: Mapping[Module, str]) -> set[Module]:
    """The other modules of the crate whose names the text of `module` uses."""
    code = without_tests(NO_CODE.sub(" ", text))
    children = set(CHILD.findall(code))
    paths = [path for tree in IMPORT.findall(code) for path in expanded(tree)]
    paths += INLINE.findall(IMPORT.sub(" ", code))
    used = set()
    for path in paths:
        first, *names = (name.strip() for name in path.split("::"))
        base = {"crate": (), "self": module, "super": module[:-1]}.get(first)
        if base is None:
            if first not in children:
                continue  # Another crate's, or a name that was imported and is counted there.
            base, names = module, [first, *names]
        while names and names[0] == "super":
            base, names = base[:-1], names[1:]
        while names and (*base, names[0]) in known:
            base, names = (*base, names[0]), names[1:]
        used.add(base)
    return used - {module}


def cycle(texts: Mapping[Module, str]) -> list[str]:
    """The names of modules that import each other, in order, the first one again at the end; empty if none do."""
    graph = {module: imports(module, text, texts) for module, text in texts.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # graphlib names each module after one that it imports.
        return ["::".join(("crate", *module)) for module in reversed(error.args[1])]
    return []


def test_no_modules_of_the_kernel_import_each_other() -> None:
    texts = modules(SOURCES)
    assert {(), ("codec",), ("python",), ("python", "errors")} <= texts.keys()
    assert cycle(texts) == []
