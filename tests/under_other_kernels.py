"""The numerical tests under the code that the libraries choose on other processors, with one thread and with two.

    .venv/bin/python tests/under_other_kernels.py [--only WORD] [pytest arguments]

torch, oneDNN, MKL, OpenBLAS and NumPy each look at the processor and choose code for it; each can be told by the
environment to take less than there is. Before a setting is run, the libraries are asked what they make of it, in a
process of its own: one that changes nothing is ignored on this machine, and said to be.
--only runs the settings whose name holds the word. Other arguments go to pytest in place of the list of test files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ATEN, ONEDNN, MKL, OPENBLAS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "OPENBLAS_CORETYPE",
)
# NumPy's own loops; it warns of a name that it does not know, and older ones call the same by other names.
NUMPY = "NPY_DISABLE_CPU_FEATURES"
SETTINGS: tuple[dict[str, str], ...] = (
    {},
    *({ATEN: level} for level in ("default", "avx2", "avx512")),
    *({ONEDNN: level} for level in ("SSE41", "AVX2", "AVX512_CORE")),
    *({MKL: level} for level in ("SSE4_2", "AVX2", "AVX512")),
    {"MKL_CBWR": "COMPATIBLE"},  # also heard on processors of other makers, where MKL passes over the one above
    *({OPENBLAS: core} for core in ("Nehalem", "Haswell", "SkylakeX")),
    {NUMPY: "X86_V4 AVX512_ICL AVX512_SPR"},
    # What a processor without AVX-512 takes, and one that is as old as x86-64 comes.
    {ATEN: "avx2", ONEDNN: "AVX2", MKL: "AVX2", OPENBLAS: "Haswell", NUMPY: "X86_V4 AVX512_ICL AVX512_SPR"},
    {ATEN: "default", ONEDNN: "SSE41", MKL: "SSE4_2", "MKL_CBWR": "COMPATIBLE", OPENBLAS: "Nehalem",
     NUMPY: "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"},
)  # fmt: skip
# What each library says that it runs; of MKL also the last bits of a product, for it says little.
PROBE = """
import hashlib, json, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
from threadpoolctl import threadpool_info
draw = torch.Generator().manual_seed(0)
a, b = (torch.randn(67, 67, generator=draw) for _ in range(2))
product = a @ b
torch.nn.functional.conv2d(torch.ones(1, 3, 16, 16), torch.ones(4, 3, 4, 4), stride=4)
import numpy._core._multiarray_umath as umath
cores = sorted({pool["architecture"] for pool in threadpool_info() if pool.get("architecture")})
print("PROBE" + json.dumps({
    "ATen": torch.backends.cpu.get_cpu_capability(),
    "torch's product": hashlib.sha256(product.numpy().tobytes()).hexdigest()[:8],
    "OpenBLAS": " ".join(cores),
    "NumPy": " ".join(sorted(name for name, there in umath.__cpu_features__.items() if there and "X" in name)),
}))
"""


def environment(setting: dict[str, str], threads: int) -> dict[str, str]:
    """That of this process with a setting in it, and nothing of the others'."""
    names = {name for one in SETTINGS for name in one}
    plain = {name: value for name, value in os.environ.items() if name not in names}
    return {**plain, **setting, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}


def kernels(setting: dict[str, str]) -> dict[str, str]:
    """What the libraries make of a setting."""
    verbose = {"ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env={**environment(setting, 1), **verbose}, text=True, capture_output=True
    )
    if done.returncode:
        sys.exit(f"torch and NumPy do not start with {setting}:\n{done.stderr}")
    found: dict[str, str] = json.loads(done.stdout.partition("PROBE")[2].partition("\n")[0])
    for name, pattern in {
        "oneDNN": r"info,cpu,isa:(.*)",
        "MKL": r"MKL_VERBOSE.*?for (.*?), Lnx",
        "MKL reproducible": r"CNR:(\w+)",
    }.items():
        seen = re.search(pattern, done.stdout)
        found[name] = seen[1] if seen else "not there"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the settings whose name holds this word")
    chosen, given = parser.parse_known_args()
    modules = sorted((ROOT / "tests" / "core").glob("test_*.py"))
    numerical = [str(path) for path in modules if "tests.near" in path.read_text(encoding="utf-8")]
    plain = kernels({})
    print(*(f"{name}: {value}" for name, value in plain.items()), sep="\n")
    passed, failed, ignored = [], [], []
    for setting in SETTINGS:
        name = " ".join(f"{key}={value.replace(' ', ',')}" for key, value in setting.items()) or "as the processor is"
        if chosen.only not in name:
            continue
        here = kernels(setting)
        if setting and here == plain:
            ignored.append(name)
            continue
        changed = ", ".join(library for library, value in here.items() if value != plain[library])
        for threads in (1, 2):
            run = f"{name}, {threads} thread{'s' * (threads > 1)}"
            print(f"\n== {run}" + f" (changed: {changed})" * bool(changed), flush=True)
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(given or numerical)]
            done = subprocess.run(command, cwd=ROOT, env=environment(setting, threads))
            (failed if done.returncode else passed).append(run)
    for verdict, names in (("green", passed), ("RED", failed), ("changes nothing here, not run", ignored)):
        print(f"\n{verdict}:", *(names or ["none"]), sep="\n  ")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
