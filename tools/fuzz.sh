#!/usr/bin/env bash
# Builds every fuzz target with clang and runs each for a while: tools/fuzz.sh [SECONDS [TARGET...]], 60 s without. What
# is found lies in build-fuzz/found/<target>; a file from there belongs into fuzz/corpus/<target> once it is fixed.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
cmake -S . -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DEPILOGUE_FUZZ=ON -DEPILOGUE_SANITIZE=address,undefined \
    -DEPILOGUE_TESTS=OFF >/dev/null
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=($(cd fuzz && ls fuzz_*.c | sed 's/^fuzz_//; s/\.c$//'))
failed=0
for t in "${targets[@]}"; do
    cmake --build build-fuzz --target "fuzz_$t" >/dev/null
    mkdir -p "build-fuzz/found/$t"
    if build-fuzz/fuzz/fuzz_"$t" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 \
        -artifact_prefix="build-fuzz/found/$t/" "build-fuzz/found/$t" "fuzz/corpus/$t" >"build-fuzz/found/$t.log" 2>&1; then
        echo "$t: nothing found, $(grep -c '' "build-fuzz/found/$t.log") lines of log"
    else
        echo "$t: FOUND SOMETHING; see build-fuzz/found/$t.log" >&2
        failed=1
    fi
done
exit $failed
