#!/usr/bin/env bash
# epi list: one level of a trace in time order, text and JSON, and what is said where nothing can be known.
set -uo pipefail
epi=$1
here=$2
traces=$here/../trace
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "list.sh: $1" >&2; [ -n "${2:-}" ] && cat "$2" >&2; exit 1; }
run() { # expected-code command...
    local want=$1; shift
    "$@" >"$out/stdout" 2>"$out/stderr"
    local got=$?
    [ "$got" = "$want" ] || { cat "$out/stderr" >&2; fail "exit $got, not $want: $*" "$out/stdout"; }
}
same() { diff "$out/stdout" - >"$out/diff" || fail "other output than expected:" "$out/diff"; }

run 0 "$epi" list "$traces/shared/article/mlp_eager.json" --step 3
same <<'END'
    start us    host us kernels  device us  op
      29.797     69.407       1     56.224  aten::linear
     105.543     22.572       1     32.897  aten::gelu
     138.722     60.812       1     56.640  aten::linear
     203.479     22.553       1     36.031  aten::mul
     235.568     52.459       1     50.689  aten::linear
END

run 0 "$epi" list "$traces/shared/article/linear_eager.json" --level 1 --kernels --region linear_fwd --step 4
same <<'END'
    start us    host us kernels  device us  op
      24.054      7.992       0      0.000  aten::t
      34.051     38.460       1      2.720  aten::addmm
      72.266                         2.720    nvjet_sm90_tst_64x8_64..z_bias_TNT
END

# Another thread launches the backward: its lines stand where it started.
run 0 "$epi" list "$traces/small/steps.json" --step 1
same <<'END'
    start us    host us kernels  device us  op
thread 1
     100.000    100.000       1    100.000  aten::mm
thread 2
     300.000    100.000       1    100.000  MmBackward
END

# A region inside an op: its outermost ops are level 0 all the same; what starts behind the region is none of its.
run 0 "$epi" list "$traces/small/region_in_op.json" --region inner
same <<'END'
    start us    host us kernels  device us  op
      20.000     20.000       -          -  aten::linear
      50.000     40.000       -          -  outlives
no device work was recorded: kernels are not known
END
run 0 "$epi" list "$traces/small/region_in_op.json" --region inner --level 1
same <<'END'
    start us    host us kernels  device us  op
      30.000      5.000       -          -  aten::addmm
      50.000     40.000       -          -  outlives
no device work was recorded: kernels are not known
END

# A region that outlives the op it began in: what runs behind that op is in no op.
run 0 "$epi" list "$traces/small/region_outlives_op.json"
same <<'END'
    start us    host us kernels  device us  op
       0.000     50.000       -          -  begins
     100.000     40.000       -          -  behind
no device work was recorded: kernels are not known
END
run 0 "$epi" diff "$traces/small/region_outlives_op.json" "$traces/small/region_outlives_op.json" --json
tr -d ' \n' <"$out/stdout" | grep -q '"top_level_cpu_ops":\[2,2\]' || fail "ops in no other op" "$out/stdout"

run 0 "$epi" list "$traces/shared/zoology-a100-no-device-events.json"
grep -q 'no device work was recorded: kernels are not known' "$out/stdout" || fail "no word on the missing device side"
grep -qE ' +- +-  aten::linear' "$out/stdout" || fail "kernels are given where none can be known" "$out/stdout"

run 0 "$epi" list "$traces/damage/cut_in_event.json"
grep -q 'the file is cut off: the list is partial' "$out/stdout" || fail "no word on the cut"

run 0 "$epi" list "$traces/shared/article/mlp_eager.json" --json --kernels --step 3
grep -q '"name": "aten::gelu","start_us": 105.543,"us": 22.572,"level": 0' "$out/stdout" || fail "JSON" "$out/stdout"
if command -v python3 >/dev/null; then
    python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); assert len(d["ops"])==5 and len(d["ops"][0]["work"])==2' \
        "$out/stdout" || fail "JSON does not parse" "$out/stdout"
fi

run 2 "$epi" list
run 2 "$epi" list "$traces/foreign/page.json"
grep -q 'HTML page' "$out/stderr" || fail "what a page is"
run 2 "$epi" list "$traces/small/steps.json" --step 9
grep -q "no region is named 'ProfilerStep#9'; there are ProfilerStep#0" "$out/stderr" || fail "which steps there are"
run 2 "$epi" list "$traces/small/steps.json" --level -1
run 2 "$epi" list "$traces/small/steps.json" --step -1
run 2 "$epi" list "$traces/small/steps.json" --region nosuch
grep -q "there are ProfilerStep#0, ProfilerStep#1" "$out/stderr" || fail "no word on the regions there are" "$out/stderr"
# A cut as a trace of its own: the same ops again.
run 0 "$epi" list "$traces/shared/article/mlp_eager.json" --step 3 --write "$out/cut.json.gz"
run 0 "$epi" list "$out/cut.json.gz" --json --kernels
[ "$(grep -o '"kernels": 1' "$out/stdout" | wc -l)" = 5 ] || fail "the cut has five ops with a kernel"
run 0 "$epi" list "$traces/shared/article/mlp_eager.json" --window 0:470 --write "$out/window.json"
run 0 "$epi" explain "$out/window.json"
grep -q "5 launches" "$out/stdout" || fail "a window as a trace of its own"
# The keys beside the events go along, the first with an escape too.
printf '{"a\\tb": 1, "schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1}]}' >"$out/keys.json"
run 0 "$epi" list "$out/keys.json" --write "$out/keys2.json"
grep -q '"a\\tb": 1, "schemaVersion": 1' "$out/keys2.json" || fail "the keys beside the events are lost"
run 2 "$epi" list "$traces/small/steps.json" --window 5:1
run 2 "$epi" list "$traces/small/steps.json" --window 0:5 --step 1
run 0 "$epi" list "$traces/shared/torchrec-v100-4gpu-rank0.json" --kernels --level 2
awk 'length($0) > 80 { exit 1 }' "$out/stdout" || fail "lines over 80 columns"
run 0 "$epi" list --help
echo ok
