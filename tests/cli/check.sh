#!/usr/bin/env bash
# epi check: exit codes, JSON, JUnit, annotations, and the article's expectations on the article's traces.
set -uo pipefail
epi=$1
here=$2
traces=$here/../trace/shared/article
guesses=$here/../guess
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "check.sh: $1" >&2; [ -n "${2:-}" ] && cat "$2" >&2; exit 1; }
run() { # expected-code command...
    local want=$1; shift
    "$@" >"$out/stdout" 2>"$out/stderr"
    local got=$?
    [ "$got" = "$want" ] || { cat "$out/stderr" >&2; fail "exit $got, not $want: $*" "$out/stdout"; }
}
has() { grep -qF -- "$1" "$out/stdout" || fail "no '$1' in:" "$out/stdout"; }

# The article, on the card where it does not hold: two memsets, the host is slower, compile's dispatch grows.
run 1 "$epi" check "$guesses/article.guess" "$traces/mlp_eager.json" "$traces/mlp_compiled.json"
has 'broken     mlp_fwd: memsets = 0'
has 'expected 0, seen 2 in each of 3 instances'
has 'Memset (Device) at '
has 'broken     compare mlp_fwd: dispatch ratio < 1'
has 'confirmed  mlp_fwd: kernels = 5'
has 'confirmed  compare mlp_fwd: kernels matching "gemm" same names'
has '3 broken, 10 confirmed, 0 unknown'
awk 'length($0) > 80 { exit 1 }' "$out/stdout" || fail "a line is wider than 80 columns" "$out/stdout"

# The hand-written kernel is the faster one here.
run 1 "$epi" check "$guesses/compiled_liger.guess" "$traces/mlp_compiled.json" "$traces/mlp_liger.json"
has 'broken     compare mlp_fwd: kernel time matching "pointwise" ratio >= 1'
has 'confirmed  mlp_fwd: fused gelu mul'

# One trace for two: unknown, which fails only when asked to.
printf 'compare\n kernels delta = -1\n' >"$out/two.guess"
run 0 "$epi" check "$out/two.guess" "$traces/mlp_eager.json"
has 'this needs a second trace'
run 1 "$epi" check "$out/two.guess" "$traces/mlp_eager.json" --strict

# needs 53: kernels in eager 5, compiled 4, tuned 4; GEMM names equal in all three.
printf 'region mlp_fwd\n kernels = 5\n kernels matching gemm = 3\ncompare region mlp_fwd\n kernels delta = -1\n kernels matching gemm same names\n' >"$out/53.guess"
run 0 "$epi" check "$out/53.guess" "$traces/mlp_eager.json" "$traces/mlp_compiled.json"
run 0 "$epi" check "$out/53.guess" "$traces/mlp_eager.json" "$traces/mlp_liger.json"
# needs 53: no kernel events at all is what the smallest guess finds.
printf 'kernels > 0\n' >"$out/any.guess"
run 1 "$epi" check "$out/any.guess" "$here/../trace/shared/zoology-a100-no-device-events.json"
has 'no device events were recorded'
run 0 "$epi" check "$out/any.guess" "$traces/mlp_eager.json"
printf 'kernels = 260\n' >"$out/count.guess"
run 0 "$epi" check "$out/count.guess" "$here/../trace/shared/zoology-a100-no-device-events.json"
has '0 broken, 0 confirmed, 1 unknown'

# Programs' forms.
run 1 "$epi" check "$guesses/article.guess" "$traces/mlp_eager.json" --json --junit "$out/junit.xml"
head -c 1 "$out/stdout" | grep -q '{' || fail "no JSON object" "$out/stdout"
has '"verdict": "broken"'
has '"confirmed": 6'
grep -q '<testsuite name="guess" tests="13" failures="2" errors="0" skipped="5">' "$out/junit.xml" || fail "JUnit" "$out/junit.xml"
run 1 "$epi" check "$guesses/article.guess" "$traces/mlp_eager.json" --github
has "::error file=$guesses/article.guess,line=10,title=mlp_fwd%3A memsets = 0::expected 0, seen 2"
run 2 "$epi" check "$guesses/article.guess" "$traces/mlp_eager.json" --github --json

# What can't be read says where.
printf 'region a\n  kernals = 5\n' >"$out/bad.guess"
run 2 "$epi" check "$out/bad.guess" "$traces/mlp_eager.json"
grep -qF "bad.guess:2:3: there is no claim about 'kernals'; did you mean 'kernels'?" "$out/stderr" || fail "position" "$out/stderr"
run 2 "$epi" check "$out/none.guess" "$traces/mlp_eager.json"
run 2 "$epi" check "$out/two.guess" "$out/none.json"
run 2 "$epi" check "$out/two.guess"
run 2 "$epi" check "$traces/mlp_eager.json" "$out/two.guess"
grep -qF "looks like a trace; the guess file stands first" "$out/stderr" || fail "the order of the files" "$out/stderr"
run 0 "$epi" check --help
cp "$out/stdout" "$out/help"
run 0 "$epi" help check
diff "$out/help" "$out/stdout" >"$out/diff" || fail "epi help check is epi check --help" "$out/diff"
run 2 "$epi" help nosuch
echo "check.sh: ok"
