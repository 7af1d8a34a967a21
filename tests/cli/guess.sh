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
echo "guess.sh: ok"
