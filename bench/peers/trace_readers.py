#!/usr/bin/env python3
"""The same trace through other readers, each in a process of its own: seconds and peak memory, and the ratio to ours.

    trace_readers.py TRACE.json --epi build/epi [--only NAME...]

json: json.load and nothing else.  hta: HolisticTraceAnalysis: its idle-time and kernel breakdown, as `explain` has them.
tracelens: AMD's TraceLens (from its repository; PYTHONPATH says where): GPU timeline and the ops that launch kernels.
perfetto: the trace processor of the perfetto package, which fetches its binary on first use.  epi: `epi explain --json`.
"""
import argparse
import os
import subprocess
import sys
import time

CODE = {
    "json": "import json,sys; d=json.load(open(sys.argv[1])); print(len(d['traceEvents']))",
    "hta": """
import sys, os, tempfile, shutil
from hta.trace_analysis import TraceAnalysis
d = tempfile.mkdtemp()
os.symlink(os.path.abspath(sys.argv[1]), os.path.join(d, 'rank0.json'))
t = TraceAnalysis(trace_files={0: os.path.join(d, 'rank0.json')}, trace_dir=d)
t.get_gpu_kernel_breakdown(visualize=False)
t.get_temporal_breakdown(visualize=False)
shutil.rmtree(d)
""",
    "tracelens": """
import sys
from TraceLens import TreePerfAnalyzer
t = TreePerfAnalyzer.from_file(sys.argv[1])
t.get_df_gpu_timeline()
t.get_df_kernel_launchers_summary(t.get_df_kernel_launchers())
""",
    "perfetto": """
import sys
from perfetto.trace_processor import TraceProcessor
t = TraceProcessor(trace=sys.argv[1])
print(list(t.query('select count(*) as n from slice'))[0].n)
""",
}


def run(command):
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    return time.monotonic() - start, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status), error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--epi", default="build/epi")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    size = os.path.getsize(options.trace) / 1e6
    ours = min((run([options.epi, "explain", options.trace, "--json"]) for _ in range(3)), key=lambda r: r[0])
    if ours[2] != 0:
        sys.exit("epi explain failed: " + ours[3])
    print(f"{options.trace}: {size:.1f} MB")
    print(f"{'epi':10} {ours[0]:9.3f} s {ours[1]:9.1f} MB")
    for name in options.only or CODE:
        seconds, memory, code, error = run([sys.executable, "-c", CODE[name], options.trace])
        if code != 0:
            last = error.strip().splitlines()[-1] if error.strip() else f"exit {code}"
            print(f"{name:10} did not run: {last[:100]}")
            continue
        print(f"{name:10} {seconds:9.3f} s {memory:9.1f} MB   {seconds / ours[0]:6.1f} x the time, "
              f"{memory / ours[1]:6.1f} x the memory")


if __name__ == "__main__":
    main()
