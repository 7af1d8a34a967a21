#!/usr/bin/env bash
# needs: run
# epi kernels: one used row a family and dtype, the cap obeyed, 80 columns, JSON, bad options refused.
set -euo pipefail
epi=$1
fail() { echo "kernels.sh: $*"; exit 1; }
out=$("$epi" kernels)
awk 'length($0) > 80 { print "too wide: " $0; bad = 1 } END { exit bad }' <<<"$out" || fail "lines over 80 columns"
awk '/^[a-z]+ [a-z_]+$/ { head = $0 } / yes / && head { n[head " " $1]++ }
     END { for (k in n) if (n[k] != 1) { print k, n[k]; bad = 1 } if (length(n) != 18) { print length(n) " families"; bad = 1 } exit bad }' \
    <<<"$out" || fail "not one used row a family and dtype"
[ "$(EPILOGUE_ISA=portable "$epi" kernels --used --dtype f32 | grep -c 'portable.* yes ')" -eq 6 ] || fail "EPILOGUE_ISA is not obeyed"
EPILOGUE_ISA=AVX2 "$epi" kernels | grep -q "EPILOGUE_ISA=AVX2: no level" || fail "an unknown level is not told"
EPILOGUE_ISA=portable "$epi" kernels | grep -q "no level" && fail "a known level is told as unknown"
EPILOGUE_ISA=portable "$epi" kernels | grep -qE "lacks the instructions|forbids" || fail "no reason is given"
[ "$("$epi" kernels --json | grep -c '"family"')" -ge 1 ] || fail "no JSON"
gpu=$("$epi" kernels --device cuda)
awk 'length($0) > 80 { print "too wide: " $0; bad = 1 } END { exit bad }' <<<"$gpu" || fail "GPU: lines over 80 columns"
grep -q "sm90a_t128x128c2" <<<"$gpu" || fail "the GPU's rows are missing"
grep -qE "no GPU is used: .|^NVIDIA.* 8192 x 768 -> 3072, gelu_tanh, eager rounding" <<<"$gpu" || fail "GPU: no heading"
grep -q '"isa": "avx\|"isa": "portable' <<<"$("$epi" kernels --device cuda --json)" && fail "CPU rows under --device cuda"
grep -q '"device": \(null\|"NVIDIA\)' <<<"$("$epi" kernels --json)" || fail "JSON does not tell the GPU"
grep -q "sm90a_t128x128c2" <<<"$("$epi" kernels --device cpu)" && fail "GPU rows under --device cpu"
for bad in "--dtype i64" "--nothing" "extra" "--device tpu" "--batch 0" "--act none" "--rounding up"; do
    if "$epi" kernels $bad >/dev/null 2>&1; then fail "'$bad' was accepted"; fi
done
