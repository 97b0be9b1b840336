"""`./run bench` lists the benchmarks, `./run bench NAME …` runs one with the arguments that follow."""

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def sources() -> dict[str, Path]:
    found = {path.stem: path for path in HERE.glob("*.py") if not path.stem.startswith("_")}
    found |= {path.parent.name: path for path in HERE.glob("*/__main__.py")}
    return dict(sorted(found.items()))


def main() -> None:
    known = sources()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        print("usage: ./run bench NAME [ARGUMENTS]\n")
        for name, path in known.items():
            print(f"  {name:16} {(ast.get_docstring(ast.parse(path.read_text())) or '').splitlines()[0]}")
        raise SystemExit(0 if len(sys.argv) < 2 else 2)
    name = sys.argv[1]
    del sys.argv[1]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
