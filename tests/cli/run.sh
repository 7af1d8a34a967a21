#!/usr/bin/env bash
# needs: run
# epi run: the guess, the run and the verdict in 80 columns; the JSON with true counts; refusals.
set -euo pipefail
epi=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=2
fail() { echo "run.sh: $*"; exit 1; }
small="--batch 2 --seq 5 --dim 32 --hidden 48 --active 2 --warmup 1"

# needs.md 53: the guess comes first, and says what a person would count by hand.
out=$("$epi" run geglu $small --dtype f32)
for part in "GUESS eager" "11, of which 3 are views" "5: 3 matrix products (GEMM), 2 pointwise" "RAN eager" \
            "LOOK eager" "kernels = 5" "error    at most" "profiler"; do
    grep -qF "$part" <<<"$out" || fail "no '$part' in: $out"
done
[ "$(grep -n 'GUESS eager' <<<"$out" | cut -d: -f1)" -lt "$(grep -n 'RAN eager' <<<"$out" | cut -d: -f1)" ] || fail "the guess comes after the run"
awk 'length($0) > 80 { print "too wide: " $0; bad = 1 } END { exit bad }' <<<"$out" || fail "lines over 80 columns"

# The keys of the JSON, and true counts: linear -> t -> addmm, one kernel.
json=$("$epi" run linear --bias --json $small --hidden 48 2>/dev/null || true)
[ -z "$json" ] || fail "linear took --hidden"
json=$("$epi" run linear --bias --json --batch 2 --seq 5 --dim 32 --out 64 --active 2)
for key in block device dtype shape machine peak_gflops bandwidth_gbs modes mode step_us median min max kernel_us \
           dispatch_us bytes flops bound_us compile entries recompiles cold_us waited_us error max_abs max_rel vs kernels \
           name count us trace verdicts claim line verdict expected seen event report; do
    grep -q "\"$key\":" <<<"$json" || fail "no key '$key' in the JSON"
done
for fact in '"kernels_per_step": 1,' '"ops_per_step": 3,' '"views_per_step": 1,' '"launches_per_step": 1,' \
            '"flops": 41600,' '"bytes": 6144,' '"vs": "f64"' '"hidden": null' '"report": null'; do
    grep -qF "$fact" <<<"$json" || fail "no '$fact' in: $json"
done
json=$("$epi" run geglu $small --json)
for fact in '"kernels_per_step": 5,' '"ops_per_step": 11,' '"views_per_step": 3,'; do
    grep -qF "$fact" <<<"$json" || fail "no '$fact' for geglu"
done

# needs.md 1: an empty batch launches nothing.
json=$("$epi" run mlp --json --batch 0 --dim 32 --hidden 48 --active 2)
grep -qF '"kernels_per_step": 0,' <<<"$json" || fail "an empty batch launched a kernel"

# A guess of one's own: a wrong one is shown as wrong and gives exit code 1.
printf 'region step\n  kernels = 5\n' >"$work/right.guess"
printf 'region step\n  kernels = 4\n' >"$work/wrong.guess"
printf 'region step\n  kernels is four\n' >"$work/broken.guess"
"$epi" run geglu $small --guess "$work/right.guess" >/dev/null || fail "a right guess gave $?"
code=0; out=$("$epi" run geglu $small --guess "$work/wrong.guess") || code=$?
[ $code -eq 1 ] || fail "a wrong guess gave $code"
grep -q "SURPRISE" <<<"$out" || fail "a wrong guess is no surprise"
code=0; "$epi" run geglu $small --guess "$work/broken.guess" >/dev/null 2>"$work/err" || code=$?
[ $code -eq 2 ] || fail "a guess that does not parse gave $code"
grep -q ":2:" "$work/err" || fail "no line in: $(cat "$work/err")"

# A list of modes shows each of them, side by side; a name that is none is refused.
out=$("$epi" run geglu $small --mode eager,tuned)
[ "$(grep -c '^RAN ' <<<"$out")" -eq 2 ] || fail "a list of two modes ran others: $out"
grep -q "SIDE BY SIDE" <<<"$out" || fail "a list of modes is not side by side"
code=0; "$epi" run geglu $small --mode eager,fast >/dev/null 2>&1 || code=$?
[ $code -eq 2 ] || fail "a mode that is none gave $code"

# An empty batch runs no kernel, and our own trace knows so.
out=$("$epi" run geglu $small --batch 0)
grep -q "No surprise: 9 of 9 claims held" <<<"$out" || fail "an empty batch: $out"

# --ask scores a person's guess: it is about the first mode, and each question stands on its own line in a pipe, too.
out=$(printf '5\n2\ncompute\n\n' | "$epi" run geglu $small --ask --mode all)
[ "$(grep -c "YOUR GUESS scored" <<<"$out")" -eq 1 ] || fail "a guess about the eager step is scored for others: $out"
awk 'length($0) > 80 { print "too wide: " $0; bad = 1 } END { exit bad }' <<<"$out" || fail "ask: lines over 80 columns"
out=$(printf '5\n2\ncompute\n\n' | "$epi" run geglu $small --ask)
grep -q "kernels    5                5                right" <<<"$out" || fail "ask: kernels not scored: $out"
grep -q "views      2                3                no" <<<"$out" || fail "ask: views not scored"

# Traces are written, and are gzip or not by their name.
"$epi" run mlp $small --trace-dir "$work/traces" >/dev/null
grep -q '"traceEvents"' "$work/traces/mlp-eager.json" || fail "no trace"
# A tuned block's kernels say themselves what each does: two rows of products, not one of both together.
EPILOGUE_TUNED=kernels "$epi" run geglu $small --mode tuned --trace-dir "$work/traces" >/dev/null
rows=$("$epi" explain "$work/traces/geglu-tuned.json" --json | grep -oE '"kernel": ?"ep_[a-z0-9_]*"' | sort -u)
[ "$(wc -l <<<"$rows")" -eq 2 ] || fail "a block's two kernels are not two rows: $rows"

# Every mode side by side; those that are not there are named.
out=$("$epi" run geglu $small --mode all)
grep -q "SIDE BY SIDE" <<<"$out" || fail "no side by side"
grep -qE "^  eager .* 1\.00 " <<<"$out" || fail "eager's ratio to itself is not 1"
awk 'length($0) > 80 { print "too wide: " $0; bad = 1 } END { exit bad }' <<<"$out" || fail "lines over 80 columns"
json=$("$epi" run geglu $small --mode eager,tuned --json)
grep -qF '"ratio_to_eager": 1,' <<<"$json" || fail "no ratio in the JSON"
for mode in eager compiled tuned; do grep -qE "^  $mode +" <<<"$out" || fail "$mode is missing side by side"; done

# Tuned mode's guess is of the way that was chosen.
for way in kernels:2 onednn:4; do
    out=$(EPILOGUE_TUNED=${way%:*} "$epi" run geglu $small --mode tuned)
    grep -q "^SHARPENED, by the choice: ${way#*:} kernels" <<<"$out" || fail "tuned, $way: not sharpened: $out"
    grep -qE "^  yes  kernels = ${way#*:} " <<<"$out" || fail "tuned, $way: the guess did not hold: $out"
done

# --vary times each call.
out=$("$epi" run linear --batch 1 --seq 4 --dim 16 --vary batch=1..8)
grep -qE "^  eager +" <<<"$out" || fail "vary shows no eager calls"
# All policies; and the compiler steps aside where calls do not wait for it, and only there.
printf '#!/bin/sh\nnice >>"%s"\nexec cc "$@"\n' "$work/niceness" >"$work/cc"
chmod +x "$work/cc"
out=$(EPILOGUE_CC=$work/cc EPILOGUE_CACHE_DIR=$work/vary "$epi" run geglu $small --mode eager,compiled --vary batch=1..2)
for policy in "compiled  " "compiled, waiting" "compiled, static"; do
    grep -qE "^  $policy +[0-9.]+ [mnu]?s +[0-9.]+ [mnu]?s +[0-9.]+ [mnu]?s " <<<"$out" || fail "vary lacks '$policy': $out"
done
low=$(($(nice) + 5 > 19 ? 19 : $(nice) + 5))
grep -qx "$(nice)" "$work/niceness" || fail "a compiler that is waited for steps aside: $(cat "$work/niceness")"
rm "$work/niceness"
EPILOGUE_CC=$work/cc EPILOGUE_CACHE_DIR=$work/vary "$epi" run geglu $small --mode compiled >/dev/null
[ "$(cat "$work/niceness")" = "$low" ] || fail "no compiler stepped aside: $(cat "$work/niceness")"

# Refusals: one sentence, exit 2.
refuse() {
    code=0; "$epi" run "$@" >/dev/null 2>"$work/err" || code=$?
    [ $code -eq 2 ] || fail "'$*' gave $code"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "'$*' is not refused in one line: $(cat "$work/err")"
}
refuse
refuse nothing
refuse geglu --dtype f64
refuse geglu --mode fast
refuse geglu --batch -1
refuse geglu --batch many
refuse geglu --device tpu
refuse geglu --act tanh
refuse geglu --rounding twice
refuse geglu --active 0
refuse geglu --layer 3
refuse geglu --vary dim=1..4
refuse geglu --vary batch=4..1
refuse geglu --guess "$work/absent"
refuse geglu --weights "$work/absent"
refuse linear --act relu
refuse geglu --ask --json

# A kernel that does not build is counted and told, and the calls are answered all the same.
out=$(EPILOGUE_CC=/bin/false EPILOGUE_CACHE_DIR=$work/none "$epi" run geglu $small --mode compiled || true)
grep -qF "NOT BUILT: 1 generated kernel" <<<"$out" || fail "a build failure is not told: $out"
out=$(EPILOGUE_CC=/bin/false EPILOGUE_CACHE_DIR=$work/none "$epi" run mlp $small --mode compiled || true)
grep -qF "answered by a plan without" <<<"$out" || fail "an epilogue that did not build is not told: $out"
json=$(EPILOGUE_CC=/bin/false EPILOGUE_CACHE_DIR=$work/none "$epi" run geglu $small --mode compiled --json || true)
grep -q '"build_failures": 1,*$' <<<"$json" || fail "a build failure is not counted: $json"

# What the disk cache could not take is named, not only counted. Only root may mount a full disk.
mkdir "$work/tiny"
cat >"$work/full.sh" <<'END'
mount -t tmpfs -o size=4k,mode=0700 none "$2/tiny" || exit 77
EPILOGUE_CACHE_DIR=$2/tiny "$1" run geglu --batch 1 --seq 4 --dim 16 --hidden 32 --mode compiled >"$2/text"
EPILOGUE_CACHE_DIR=$2/tiny "$1" run geglu --batch 1 --seq 4 --dim 16 --hidden 32 --mode compiled --json >"$2/json"
END
if unshare -m bash "$work/full.sh" "$epi" "$work" 2>/dev/null; then
    grep -qF "cache    full disk, kernel not kept" "$work/text" || fail "a full disk is not named: $(cat "$work/text")"
    grep -qF '"cache_trouble": "full disk"' "$work/json" || fail "a full disk is not named: $(cat "$work/json")"
fi

# What the environment asks of the kernels is named, and whether it is heard.
out=$(EPILOGUE_TUNED=fastest EPILOGUE_ISA=portable "$epi" run geglu $small --mode tuned)
grep -q "EPILOGUE_TUNED=fastest changes nothing" <<<"$out" || fail "an EPILOGUE_TUNED that is none is not told: $out"
grep -q "^instruction set portable (EPILOGUE_ISA)" <<<"$out" || fail "EPILOGUE_ISA is not told: $out"
grep -q "portable" <<<"$(grep "  ep_" <<<"$out")" || fail "EPILOGUE_ISA=portable ran other kernels: $out"
out=$("$epi" run geglu $small --mode tuned)
! grep -q "EPILOGUE" <<<"$out" || fail "the environment is named where nothing is set"

# One view is one; what there is nothing to compute of has no views to tell of; what is for a GPU is refused on the CPU.
out=$("$epi" run linear --batch 1 --seq 1 --dim 8)
grep -q "of which 1 is a view: it runs no kernel and moves no byte" <<<"$out" || fail "one view: $out"
out=$("$epi" run geglu --batch 0 --dim 32 --hidden 48)
grep -q "none runs a kernel, as there is nothing to compute" <<<"$out" || fail "nothing to compute: $out"
for option in --tf32 --autotune; do
    code=0; "$epi" run geglu $small $option >/dev/null 2>"$work/err" || code=$?
    [ $code -eq 2 ] && grep -q "is for a GPU" "$work/err" || fail "$option on the CPU gave $code: $(cat "$work/err")"
done
"$epi" --help | awk 'length($0) > 80 { bad = 1 } END { exit bad }' || fail "epi --help is wider than 80 columns"

# Why a kernel did not build is told, and what answers the calls instead.
out=$(EPILOGUE_CC=/bin/false EPILOGUE_CACHE_DIR=$work/none "$epi" run geglu $small --mode compiled)
grep -q "NOT BUILT: 1 generated kernel" <<<"$out" || fail "a compiler that fails is not told: $out"
grep -qE "epi_poi_[a-z_0-9]+: failed: .*(false|code)" <<<"$out" || fail "no reason for a kernel that did not build: $out"
