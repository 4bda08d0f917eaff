"""Run every bench, also after one that fails, and print all figures beside their limits.

    python bench/run.py [NAME…] [--json FILE] [--factor NUMBER]

Exit code 1: a limit is exceeded; 2: a bench could not run, or did not report a limit of ``limits.toml``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from limits import FACTOR, RESULTS, Result, names

HERE = Path(__file__).parent
BENCHES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("run", "limits"))


def measured(bench: str, factor: str) -> tuple[list[Result], str]:
    """The figures of a bench, and why it could not run, if so."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        environment = {**os.environ, RESULTS: file.name, FACTOR: factor}
        print(f"== {bench}", flush=True)
        code = subprocess.run([sys.executable, HERE / f"{bench}.py"], env=environment, check=False).returncode
        results = [Result(**json.loads(line)) for line in file]
    if code and all(result.kept for result in results):
        return results, f"ended with {code}"
    missing = names(bench) - {result.name for result in results}
    return results, f"no figure for {', '.join(sorted(missing))}" if missing else ""


def main() -> int:
    """Run the benches and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benches", nargs="*", metavar="NAME", help=f"a bench (default: all): {', '.join(BENCHES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--factor", default="1", metavar="NUMBER", help="multiply all limits (default: 1)")
    options = parser.parse_args()
    if unknown := set(options.benches) - set(BENCHES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    results: list[Result] = []
    not_run: dict[str, str] = {}
    for bench in options.benches or BENCHES:
        found, reason = measured(bench, options.factor)
        results += found
        not_run |= {bench: reason} if reason else {}
    width = max((len(result.name) for result in results), default=0)
    print(f"\n{'bench':<{width}}  {'ratio':>8}  {'limit':>6}  result")
    for result in results:
        verdict = "passed" if result.kept else "ABOVE THE LIMIT"
        print(f"{result.name:<{width}}  {result.value:>8.3g}  {result.most:>6g}  {verdict}: {result.work}")
    for bench, reason in not_run.items():
        print(f"{bench}: not run: {reason}")
    if options.json:
        figures = {"results": [asdict(result) | {"kept": result.kept} for result in results], "not_run": not_run}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 2 if not_run else int(not all(result.kept for result in results))


if __name__ == "__main__":
    sys.exit(main())
