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

# memcheck is not told of failed driver calls: how many parameters a kernel has only an error tells, and every other failure
# is a failure of the test. racecheck does not follow mbarriers of cluster scope, by which cuBLASLt's kernels meet: what
# counts is hazards in kernels of ours.
limit=${SANITIZER_SECONDS:-60}
one() { # TOOL PROGRAM TEST
    local tool=$1 program=$2 test=$3 log code hazards from=$SECONDS
    log=$(mktemp)
    local -a how=(env EPILOGUE_TEST_SMALL=1)
    [ $tool = initcheck ] && how+=(EPILOGUE_INITCHECK=1)
    how+=(timeout "$limit" "$sanitizer" --tool $tool --error-exitcode 9)
    [ $tool = memcheck ] && how+=(--report-api-errors no)
    "${how[@]}" "$program" $test >"$log" 2>&1
    code=$?
    hazards=$(grep -a 'Race reported' "$log" | grep -vc 'nvjet\|cublasLt\|cutlass')
    say "$tool $(basename "$program") $test: exit $code, $((SECONDS - from)) s," \
        "$(grep -ao 'ERROR SUMMARY: .*\|RACECHECK SUMMARY: .*' "$log" | tail -1)" \
        "$([ $tool = racecheck ] && echo "$hazards in kernels of ours")"
    if [ $tool = racecheck ] && [ $code = 9 ] && [ "$hazards" = 0 ] && ! grep -aq 'FAILED' "$log"; then code=0; fi
    [ $code = 0 ] || grep -a '=========\|FAILED\|off by\|error: ' "$log" | head -40
    rm -f "$log"
    return $code
}
export -f one say
export sanitizer limit

# Test by test, several at a time: each tool is done within a minute.
tests() { grep -o 'cmocka_unit_test([a-z0-9_]*)' "$(dirname "$0")/../tests/device/$1.c" | sed 's/.*(\(.*\))/\1/'; }
for tool in memcheck racecheck synccheck initcheck; do
    from=$SECONDS
    {
        for p in test_cuda_ops test_cuda_blocks test_cuda_calls; do
            for t in $(tests $p); do echo $tool "$build"/tests/$p $t; done
        done
        # The same kernels again; racecheck, which looks into single CTAs, takes minutes for them on two devices.
        [ $tool = racecheck ] || echo $tool "$build"/tests/test_cuda_two
    } | xargs -P "${SANITIZER_JOBS:-8}" -L 1 bash -c 'one "$0" "$1" "$2"' || failed=1
    say "$tool: all of it in $((SECONDS - from)) s"
done
exit $failed
