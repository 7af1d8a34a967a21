#!/usr/bin/env bash
# The device tests, then the same on small shapes under compute-sanitizer's four tools: tools/check_gpu.sh BUILD
# EPILOGUE_TEST_SMALL=1 makes the tests short; EPILOGUE_INITCHECK=1 fills what initcheck cannot see being written (results
# of the bulk copy engine and of cuBLASLt), so that what it still reports is ours.
set -uo pipefail
build=${1:-build}
failed=0
say() { echo "check_gpu: $*"; }

if [ -f "$build/CTestTestfile.cmake" ]; then
    (cd "$build" && ctest --output-on-failure -L gpu) || failed=1
else
    for t in "$build"/tests/test_cuda_*; do "$t" || { say "$t failed"; failed=1; }; done
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[ -n "$sanitizer" ] || { say "compute-sanitizer is not here: its four tools are left out"; exit $failed; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# What the tools themselves do not see, shown on two small programs: initcheck the copy engine's stores (why EPILOGUE_INITCHECK
# fills them), racecheck mbarriers of cluster scope (why CTAs of a cluster meet at barrier.cluster).
probe() { # NAME TOOL HOW...
    local program=$build/$1 name=$1 tool=$2 how said
    [ -x "$program" ] || nvcc -gencode arch=compute_90a,code=sm_90a -o "$program" \
        "$(dirname "$0")/../tests/device/sanitize/$name.cu" 2>/dev/null
    [ -x "$program" ] || return
    for how in "${@:3}"; do
        "$sanitizer" --tool "$tool" "$program" "$how" >"$log" 2>&1
        said=$(grep -o 'ERROR SUMMARY: .*\|RACECHECK SUMMARY: .*' "$log" | tail -1)
        say "$tool on $name $how: ${said:-did not run}"
    done
}
probe bulk_store initcheck plain bulk
probe cluster_sum racecheck cluster mbarrier nothing

for tool in memcheck racecheck synccheck initcheck; do
    for t in "$build"/tests/test_cuda_ops "$build"/tests/test_cuda_two; do
        [ -x "$t" ] || continue
        fill=()
        [ $tool = initcheck ] && fill=(EPILOGUE_INITCHECK=1)
        env EPILOGUE_TEST_SMALL=1 "${fill[@]}" timeout "${SANITIZER_SECONDS:-300}" \
            "$sanitizer" --tool $tool --error-exitcode 9 "$t" >"$log" 2>&1
        code=$?
        say "$tool $(basename "$t"): exit $code, $(grep -o 'ERROR SUMMARY: .*\|RACECHECK SUMMARY: .*' "$log" | tail -1)"
        [ $code = 0 ] && continue
        failed=1
        grep -a '=========\|FAILED\|off by\|error: ' "$log" | head -40
    done
done
exit $failed
