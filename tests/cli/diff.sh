#!/usr/bin/env bash
# epi diff: the article's conclusions, exit codes of --fail-on, bad input.
set -euo pipefail
epi=$1
traces=$2/../trace
article=$traces/shared/article
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "diff.sh: $*"; exit 1; }
"$epi" diff "$article/mlp_eager.json" "$article/mlp_compiled.json" >"$tmp/text" || fail "exit $?"
sed -n '/^mlp_fwd, median/,/^  host /p' "$tmp/text" >"$tmp/table"
diff "$tmp/table" - <<'EOF' || fail "the table of eager against compiled"
mlp_fwd, median instance                                          A us      B us
  same    Memset (Device)                                          0.7       0.7
  same    nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT          55.8      55.9
  fused   gelu bf16 + mul bf16
          -> triton_poi_fused__unsafe_view_gelu_mul_0             68.6      55.3
  same    Memset (Device)                                          0.7       0.7
  same    nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT          55.9      60.4
  same    nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT          50.8      50.5
  device                                                         232.6     223.6
  host                                                           260.1     350.2
EOF
"$epi" diff --json "$article/mlp_eager.json" "$article/mlp_compiled.json" >"$tmp/json"
for key in regions pairs relation us_a us_b bytes_saved dispatch_us_a dispatch_us_b device_us_a device_us_b summary; do
    grep -q "\"$key\"" "$tmp/json" || fail "no $key in the JSON"
done
"$epi" diff "$article/linear_eager.json" "$article/linear_compiled.json" >"$tmp/text" || fail "linear: exit $?"
grep -q "Same GPU work" "$tmp/text" || fail "linear"
# every pair of models that were recorded twice
"$epi" diff "$traces/shared/bert-small-h100.json.gz" "$traces/shared/bert-small-mi300.json.gz" >/dev/null || fail "bert"
"$epi" diff "$traces/shared/vit-a100-inductor-bf16.json.gz" "$traces/shared/vit-a100-inductor-int8.json.gz" >/dev/null || fail "vit"
for pair in "article/mlp_eager.json article/mlp_compiled.json" "torchrec-v100-4gpu-rank0.json llama-4layers-4090x2.json"; do
    set -- $pair
    (cd "$traces/shared" && "$epi" diff "$1" "$2") | awk 'length($0) > 80 { print "too wide: " $0; bad = 1 } END { exit bad }' || fail "$pair: lines over 80 columns"
done
# two runs on the processor: the host alone, and no share of nothing
"$epi" diff "$traces/shared/resnet18-cpu-windows.json" "$traces/shared/resnet18-cpu-windows.json" >"$tmp/text" || fail "cpu"
grep -q "Neither trace has device events" "$tmp/text" || fail "cpu: not said that there is no device"
grep -qF "? %" "$tmp/text" && fail "cpu: a share of nothing"
# the step is what is compared, collectives are not; an op that is called as often but takes another time is told
host_only() { # time of mm, of the step
    cat <<END
{"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": $2},
{"ph": "X", "cat": "user_annotation", "name": "optim", "pid": 1, "tid": 1, "ts": 1, "dur": 50},
{"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": 1, "dur": 5000},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100, "dur": $1},
{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 10, "dur": 20}
]}
END
}
host_only 500 1000 >"$tmp/a.json"
host_only 900 1400 >"$tmp/b.json"
"$epi" diff "$tmp/a.json" "$tmp/b.json" >"$tmp/text" || fail "host only"
for line in "ProfilerStep: host 1000 us -> 1400 us (+40.0 %)." "The host is slower in B by 400.0 us." \
    "its own time changed: aten::mm 500.0 us -> 900.0 us"; do
    tr '\n' ' ' <"$tmp/text" | tr -s ' ' | grep -qF -- "$line" || fail "host only: no '$line': $(cat "$tmp/text")"
done
# times of a minute and more keep the columns, too
cat >"$tmp/long.json" <<'EOF'
{"traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 98765432.1},
{"ph": "X", "cat": "user_annotation", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 98765432.1},
{"ph": "X", "cat": "user_annotation", "name": "b", "pid": 1, "tid": 1, "ts": 0, "dur": 98765430.1},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {"correlation": 7}},
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 9, "dur": 98765422.1, "args": {"device": 0, "stream": 7, "correlation": 7}}]}
EOF
"$epi" diff "$tmp/long.json" "$tmp/long.json" >"$tmp/text" || fail "long times"
[ "$(awk 'length > 80' "$tmp/text" | wc -l)" -eq 0 ] || fail "long times: lines over 80 columns"
# for CI: 1 when an expression holds, with a sentence
code=0
"$epi" diff --fail-on "kernels > +0" "$article/mlp_eager.json" "$article/mlp_compiled.json" >/dev/null || code=$?
[ "$code" -eq 0 ] || fail "kernels > +0 gave $code"
"$epi" diff --fail-on "kernels > +0" "$article/mlp_compiled.json" "$article/mlp_eager.json" >/dev/null 2>"$tmp/err" || code=$?
[ "$code" -eq 1 ] || fail "kernels > +0 the other way gave $code"
grep -q "kernels of mlp_fwd went from 4 to 5" "$tmp/err" || fail "no sentence: $(cat "$tmp/err")"
bad() {
    code=0
    "$epi" diff "$@" >"$tmp/text" 2>"$tmp/err" || code=$?
    [ "$code" -eq 2 ] || fail "'$*' gave exit $code"
    [ ! -s "$tmp/text" ] || fail "'$*' is refused behind a page of output"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "'$*' is not refused in one line"
}
bad "$article/mlp_eager.json"
bad "$article/mlp_eager.json" "$tmp/nothing.json"
bad --fail-on "speed > 1" "$article/mlp_eager.json" "$article/mlp_eager.json"
"$epi" diff --help >"$tmp/text"
grep -q -- "--fail-on" "$tmp/text" || fail "no help"
