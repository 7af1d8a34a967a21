#!/usr/bin/env bash
# Runs what can be measured here: tools/bench.sh BUILD [--gpu]. With PYTHON set to an interpreter that has torch, the
# peers too. Ratios within one run count; see docs/performance.md.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
cmake --build "$build" --target bench_kernels bench_dispatch epilogue_shared >/dev/null
export OMP_PROC_BIND=close OMP_PLACES=cores
echo "== host time of small ops"
"$build/bench/bench_dispatch"
echo "== kernels beside a copy of the same bytes, one thread"
"$build/bench/bench_kernels" add mul exp gelu_tanh gelu_erf silu sum softmax rms_norm
for extra in bench_tuned bench_compile; do
    if [ -x "$build/bench/$extra" ]; then
        echo "== $extra"
        "$build/bench/$extra"
    fi
done
if [ -x "$build/bench/bench_calls" ]; then "$build/bench/bench_calls" --runs 3; fi
if [ "${2:-}" = --gpu ] && [ -x "$build/bench/bench_gpu" ]; then "$build/bench/bench_gpu"; fi
if [ -n "${PYTHON:-}" ]; then
    echo "== beside PyTorch"
    "$PYTHON" bench/peers/torch_side_by_side.py "$build/libepilogue.so" --compile
fi
