#!/usr/bin/env bash
# epi guess: of blocks, and of every shared trace, whose guess the trace must then satisfy.
set -uo pipefail
epi=$1
here=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "guess.sh: $1" >&2; [ -n "${2:-}" ] && cat "$2" >&2; exit 1; }
run() {
    local want=$1; shift
    "$@" >"$out/stdout" 2>"$out/stderr"
    local got=$?
    [ "$got" = "$want" ] || { cat "$out/stderr" >&2; fail "exit $got, not $want: $*" "$out/stdout"; }
}
has() { grep -qF -- "$1" "$out/stdout" || fail "no '$1' in:" "$out/stdout"; }

run 0 "$epi" guess geglu
has 'region step'
has '  kernels = 5'
has '  kernels matching "gemm" = 3'
has '  op t launches = 0'
has '  median time in '
run 0 "$epi" guess geglu --mode tuned --dtype f32 --batch 1 --seq 1 --dim 64 --hidden 128
has '  kernels in 2..4'
run 0 "$epi" guess linear --bias
has '  kernels = 1'
run 2 "$epi" guess geglu --mode slow
run 2 "$epi" guess geglu --dtype i32
run 2 "$epi" guess geglu --batch -7
run 2 "$epi" guess nothing-here
run 2 "$epi" guess geglu --dim 0
run 2 "$epi" guess geglu --hidden -5
run 2 "$epi" guess linear --hidden 64
run 2 "$epi" guess linear --act silu
run 2 "$epi" guess

for trace in "$here"/../trace/shared/*.json* "$here"/../trace/shared/article/*.json; do
    run 0 "$epi" guess "$trace" --output "$out/own.guess"
    grep -q '=' "$out/own.guess" || fail "an empty guess of $trace" "$out/own.guess"
    run 0 "$epi" check "$out/own.guess" "$trace" --strict
done

# A region without a name, a name with quotes that Kineto left as they are, more regions than a guess holds, the compiler's
# notes: what is written is read again, the longest regions are among it, and no note.
awk 'BEGIN {
    print "{\"schemaVersion\": 1, \"traceEvents\": ["
    for (i = 0; i < 40; i++) printf "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"r%d\", \"pid\": 1, \"tid\": 1, \"ts\": %d, \"dur\": %d},\n", i, i * 1000, i + 1
    print "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"\", \"pid\": 1, \"tid\": 1, \"ts\": 50000, \"dur\": 900},"
    print "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"say \"hi\" now\", \"pid\": 1, \"tid\": 1, \"ts\": 51000, \"dur\": 900},"
    print "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"dynamo_data: compile_id=0/0\", \"pid\": 1, \"tid\": 1, \"ts\": 52000, \"dur\": 990},"
    print "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, \"ts\": 53000, \"dur\": 9}]}"
}' >"$out/regions.json"
run 0 "$epi" guess "$out/regions.json"
has 'region ""'
has 'region "say \"hi\" now"'
has 'region r39'
grep -q 'compile_id' "$out/stdout" && fail "a note of the compiler is guessed" "$out/stdout"
[ "$(grep -c '^region' "$out/stdout")" -eq 24 ] || fail "not 24 regions" "$out/stdout"
cp "$out/stdout" "$out/own.guess"
run 0 "$epi" check "$out/own.guess" "$out/regions.json" --strict
echo "guess.sh: ok"
