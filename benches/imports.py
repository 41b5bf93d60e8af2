"""How long the imports take: `import jax`, then `import jaxide`, then the first name of it.

Each process is a fresh one. Times are of its processor, so that other work on the machine counts
less.
"""

import argparse
import json
import statistics
import subprocess
import sys

import report

COLUMNS = {
    "`import jax`, ms": "import jax",
    "then `import jaxide`, ms": "import jaxide",
    "then `jaxide.install`, ms": "jaxide.install",
}
MEASURED = """
import json, time
times = []
for code in {codes!r}:
    start = time.process_time()
    exec(code)
    times.append((time.process_time() - start) * 1e3)
print(json.dumps(times))
"""


def in_a_fresh_process() -> list[float]:
    """Milliseconds of each."""
    code = MEASURED.format(codes=list(COLUMNS.values()))
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    times: list[float] = json.loads(done.stdout)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=15)
    options = parser.parse_args()
    measured = [in_a_fresh_process() for _ in range(options.processes)]
    cells = [f"{statistics.median(times):.1f}" for times in zip(*measured, strict=True)]
    print(*cells)
    report.record("imports", list(COLUMNS), [cells])


if __name__ == "__main__":
    main()
