#!/usr/bin/env bash
# Recorded on H200s: the article's block by us in the three modes, a data-parallel training step of a small transformer (rank 1 of 2) and a
# tensor-parallel MLP (both ranks) by torch.profiler. explain, check and diff say what happened.
set -uo pipefail
epi=$1
traces=$2/../trace/h200
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "h200_traces.sh: $1" >&2; cat "$out/stdout" "$out/stderr" >&2; exit 1; }
run() {
    local want=$1; shift
    "$@" >"$out/stdout" 2>"$out/stderr"
    local got=$?
    [ "$got" = "$want" ] || fail "exit $got, not $want: $*"
}
has() { tr -s ' \n' ' ' <"$out/stdout" | grep -qF -- "$1" || fail "no '$1'"; }

run 0 "$epi" explain "$traces/geglu-eager.json.gz"
has 'NVIDIA H200'
has '25 launches, 25 kernels'
has '10 memsets'
grep -q 'graph launch' "$out/stdout" && fail "a memset and a kernel of one call taken for a graph launch"
run 0 "$epi" explain "$traces/geglu-compiled.json.gz"
has '5 launches, 20 kernels'
has '5 graph launches run 20 kernels and 10 memsets and copies (6 a launch at most'
has 'epi_poi_gelu_tanh_mul_bf16'
run 0 "$epi" explain "$traces/geglu-tuned.json.gz"
has '5 launches, 10 kernels'
has '0 memsets'
has "? a replay's kernels have no shapes recorded"
# Two products at the speed of the datasheet's 990 TFLOP/s, not the time of their bytes alone.
has 'ep_bf16_gated_gemm_g..28c2_eager 116.6 78.1 67%'

# Five kernels and nothing else: the five hold, "nothing else" does not, and the memsets are named.
run 1 "$epi" check "$traces/five.guess" "$traces/geglu-eager.json.gz"
has 'broken step: memsets = 0'
has 'expected 0, seen 2 in each of 5 instances'
has 'Memset (Device)'
has 'confirmed step: kernels = 5'
has '1 broken, 2 confirmed, 0 unknown'

# gelu and mul of one step are one chain, five times; the next step's are not in it.
run 0 "$epi" explain "$traces/geglu-eager.json.gz"
has 'aten::gelu + aten::mul run as 2 kernels'
# The memset under a product's own launch makes no replay of it: its shapes are known, and what it is part of.
has 'A gated MLP (gelu, eager): 8192 rows, 768 -> 2 x 3072 -> 768 in bf16'
has 'aten::mm 8192,3072,768 bf16 10'

run 0 "$epi" diff "$traces/geglu-eager.json.gz" "$traces/geglu-compiled.json.gz"
has 'step: 5 -> 4 kernels'
run 0 "$epi" diff "$traces/geglu-eager.json.gz" "$traces/geglu-tuned.json.gz"
has 'step: 5 -> 2 kernels'
has 'aten::mm + aten::mm + aten::gelu + aten::mul became 1 kernel'
has 'Memsets on the device: 2 -> 0'

# No gated MLP in it: gradients of a plain one have its shapes, and those scaled into a bucket, too. cuDNN's attention backward is one.
run 0 "$epi" explain "$traces/ddp_step.json.gz"
has 'complete: 2192 events, 1430 spans; 137 launches, 137 kernels'
has 'Collectives run for 402.8 us; other kernels run beside 0.0 us of it, 402.8 us is exposed'
has 'attention 8 177.3'
grep -q 'gated MLP\|^  conv' "$out/stdout" && fail "a gradient taken for a gated MLP, or attention for a convolution"

# What was queued before a recording began is on one rank more than on the other: it is not compared.
run 0 "$epi" explain "$traces/tp_rank0.json.gz" "$traces/tp_rank1.json.gz"
has '0 2394.8 2110.4 605.4 118.5 tp_rank0.json.gz'
has '1 2623.4 2192.9 778.2 53.5 tp_rank1.json.gz'
has 'Left out: work whose launch was not recorded, 3 on rank 0, 15 on rank 1.'
has 'Rank 0 is the slowest: its device stands idle 65.0 us longer'
has 'The others wait 172.7 us more in collectives than it does'
has 'Collectives run for 1314 us; other kernels run beside 438.4 us of it, 875.6 us is exposed'

# A guess made from each trace holds on it.
for mode in eager compiled tuned; do
    run 0 "$epi" guess "$traces/geglu-$mode.json.gz" --output "$out/own.guess"
    run 0 "$epi" check "$out/own.guess" "$traces/geglu-$mode.json.gz"
done
echo "h200_traces.sh: ok"
