"""The native core alone, as Criterion measures it (`benches/ir.rs`), at one size.

    python benches/ir.py [--equations N]

Each part is measured for two seconds: the table says the order of magnitude, Criterion's own report
under `target/criterion/` how sure it is.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import report

ROOT = Path(__file__).parent.parent


def measure(equations: int) -> list[list[str]]:
    """What each part takes: its name, the median in milliseconds, and that of an equation."""
    criterion = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "criterion"
    options = ["--noplot", "--warm-up-time", "0.5", "--measurement-time", "2"]
    command = ["cargo", "bench", "--quiet", "--features", "bench", "--", f"/{equations}$", *options]
    subprocess.run(command, cwd=ROOT, check=True)
    rows = []
    for file in criterion.glob("*/*/new/benchmark.json"):
        known = json.loads(file.read_text())
        if known["value_str"] != str(equations):
            continue
        estimates = json.loads(file.with_name("estimates.json").read_text())
        nanoseconds = estimates["median"]["point_estimate"]
        rows.append(
            [known["group_id"], f"{nanoseconds / 1e6:,.2f}", f"{nanoseconds / equations:,.0f}"]
        )
    return sorted(rows)


def main() -> int:
    """Prints the table and puts it into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--equations", type=int, default=100_000)
    options = parser.parse_args()
    rows = measure(options.equations)
    for row in rows:
        print(*row, sep="  ")
    report.record("ir", [f"{options.equations:,} equations", "ms", "ns an equation"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
