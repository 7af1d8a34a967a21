#!/usr/bin/env bash
# epi explain: every shared trace in text and JSON, cuts, ranks, bad input.
set -euo pipefail
epi=$1
traces=$2/../trace
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "explain.sh: $*"; exit 1; }
for t in "$traces"/shared/*.json* "$traces"/shared/article/*.json; do
    "$epi" explain "$t" >"$tmp/text" || fail "$t: exit $?"
    [ "$(head -1 "$tmp/text")" = "$t" ] || fail "$t: the report does not begin with its file"
    grep -q "^HEALTH" "$tmp/text" || fail "$t: no health"
    "$epi" explain --json "$t" >"$tmp/json" || fail "$t: --json: exit $?"
    for key in file health span_us categories devices kernels ops views regions gemms fusions recompiles findings; do
        grep -q "\"$key\"" "$tmp/json" || fail "$t: no $key in the JSON"
    done
    # every event is in one category, also those that are folded into their kernels
    awk '/"events":/ && !want { want = $2 + 0 } /"categories":/ { inside = 1; next } inside && /}/ { exit }
        inside { sum += $NF } END { exit !want || sum != want }' "$tmp/json" || fail "$t: categories do not add up"
done
"$epi" explain "$traces/shared/article/mlp_eager.json" >"$tmp/text"
sed -n '/^DEVICE TIME/,/^$/p' "$tmp/text" >"$tmp/classes"
diff "$tmp/classes" - <<'EOF' || fail "the classes of mlp_eager"
DEVICE TIME BY CLASS           count         us       %
  gemm                              9      487.9    69.8
  pointwise                         6      206.3    29.5
  memset                            6        4.4     0.6

EOF
# in a file first: grep -q ends a pipe early
has() {
    "$epi" explain "${@:2}" >"$tmp/out" || fail "${*:2}: exit $?"
    grep -q -- "$1" "$tmp/out" || fail "${*:2}: no '$1'"
}
eager=$traces/shared/article/mlp_eager.json
has "5 launches, 5 kernels" --step 3 "$eager"
has "15 launches, 15 kernels" --region mlp_fwd "$eager"
has "5 launches" --window 0:470 "$eager"
has "5 launches, 5 kernels" --region mlp_fwd --step 3 "$eager"
# a kernel whose times were never filled in does not move the window's origin by decades
has "2 launches" --window 0:15 "$traces/small/lost_kernels_absolute.json"
has "1 kernel" --window 0:15 "$traces/small/lost_kernels.json"
has "Rank 1 is the slowest" "$traces"/explain/rank[01].json
# a machine file gives the bounds of a device that is not listed
has "Bounds by slow" --machine "$traces/explain/slow.machine" "$eager"
"$epi" explain --report "$tmp/page.html" "$eager" >/dev/null || fail "--report: exit $?"
grep -q "</html>" "$tmp/page.html" || fail "--report wrote no page"
# bad input: one sentence, exit 2
bad() {
    local code=0
    "$epi" explain "$@" >/dev/null 2>"$tmp/err" || code=$?
    [ "$code" -eq 2 ] || fail "'$*' gave exit $code"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "'$*' is not refused in one line"
}
bad
bad "$tmp/nothing.json"
printf 'version https://git-lfs.github.com/spec/v1\n' >"$tmp/lfs.json"
bad "$tmp/lfs.json"
: >"$tmp/empty.json"
bad "$tmp/empty.json"
bad --window 5:1 "$traces/explain/rank0.json"
bad --window 10s:20s "$eager"
grep -q "the trace ends after" "$tmp/err" || fail "a window behind the trace: $(cat "$tmp/err")"
bad --window 0:5 --region mlp_fwd "$eager"
bad --step 33 --region mlp_fwd "$eager"
bad --window x "$traces/explain/rank0.json"
bad --machine "$tmp/no.machine" "$traces/explain/rank0.json"
bad --nothing
# two threads have equal claims to be the one whose backward ops these are; a third, weaker one decides nothing
"$epi" explain --json "$traces/small/backward_tie.json" >"$tmp/out" || fail "a tie of forward threads"
grep -q '"backward": {' "$tmp/out" && fail "a tie of forward threads was broken by a weaker vote"
printf '[1/2] a log of something else\n' >"$tmp/log"
bad --region x "$traces/small/begin_end_device.json" # whose one region has no name
bad --region x "$tmp/log"
grep -q "no span events" "$tmp/err" || fail "a region of no trace: $(cat "$tmp/err")"
"$epi" explain --region "ProfilerStep#3" "$eager" >"$tmp/out" || fail "a step by its region's name"
grep -q "ProfilerStep is overhead-bound" "$tmp/out" || fail "a step by its region's name: $(cat "$tmp/out")"
"$epi" diff --region "ProfilerStep#3" "$eager" "$eager" >"$tmp/out" || fail "a step by its region's name, twice"
grep -q "ProfilerStep: 5 -> 5 kernels" "$tmp/out" || fail "a step by its region's name, twice: $(cat "$tmp/out")"
"$epi" explain - <"$eager" >"$tmp/out" || fail "the standard input as -"
grep -q "15 launches, 15 kernels" "$tmp/out" || fail "the standard input: $(cat "$tmp/out")"
# a rank that ran on the host alone is not the slowest one; names without their common endings tell ranks apart
cp "$traces/shared/resnet18-cpu-windows.json" "$tmp/a-long-name-of-a-host.12.1796079175405184517.pt.trace.json"
"$epi" explain "$traces/explain/rank0.json" "$tmp"/a-long*.json >"$tmp/out" || fail "two ranks"
grep -q "Rank 1 has no device work in its trace" "$tmp/out" || fail "a rank without a device: $(head -6 "$tmp/out")"
grep -q "184517$" "$tmp/out" || fail "a rank's file: $(head -6 "$tmp/out")"
"$epi" explain --json "$traces/explain/rank0.json" "$tmp"/a-long*.json >"$tmp/out"
grep -q '"slowest_rank": null' "$tmp/out" || fail "a slowest rank that can't be told"
"$epi" explain --help >"$tmp/out"
grep -q -- "--window" "$tmp/out" || fail "no help"
