#!/usr/bin/env bash
# needs: run
# epi bench: each problem in each mode, ratios to eager, and lines that are wrong are named.
set -euo pipefail
epi=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=2
fail() { echo "bench.sh: $*"; exit 1; }
printf '# two problems\ngeglu batch=2 seq=3 dim=16 hidden=24 dtype=f32\n\nlinear batch=4 dim=16 out=8 bias=1 dtype=bf16 # with a comment\n' >"$work/shapes.txt"
out=$("$epi" bench "$work/shapes.txt" --rounds 2)
grep -qE "^  eager +.* 1.00 of eager" <<<"$out" || fail "eager is not 1.00 of itself: $out"
for mode in compiled tuned; do grep -qE "^  $mode +" <<<"$out" || fail "$mode is missing"; done
[ "$("$epi" bench "$work/shapes.txt" --rounds 2 --csv | wc -l)" -eq 3 ] || fail "CSV is not a head and two lines"
"$epi" bench "$work/shapes.txt" --rounds 2 --json | grep -q '"problem": "linear batch=4 dim=16 out=8 bias=1 dtype=bf16"' || fail "no problem in the JSON"
for bad in 'geglu batch=x' 'nothing batch=1' 'geglu width=3' 'geglu batch' 'geglu dtype=f64'; do
    printf '\n%s\n' "$bad" >"$work/bad.txt"
    code=0; "$epi" bench "$work/bad.txt" --rounds 1 >/dev/null 2>"$work/err" || code=$?
    [ $code -eq 2 ] || fail "'$bad' gave $code"
    grep -q "bad.txt:2: " "$work/err" || fail "'$bad' is not named with its line: $(cat "$work/err")"
done
code=0; "$epi" bench "$work/absent.txt" 2>/dev/null || code=$?
[ $code -eq 2 ] || fail "an absent file gave $code"
printf '# nothing\n\n' >"$work/empty.txt"
code=0; "$epi" bench "$work/empty.txt" >/dev/null 2>"$work/err" || code=$?
[ $code -eq 2 ] && grep -q "no problem in this file" "$work/err" || fail "a file without a problem gave $code"
for file in "$(dirname "$0")"/../../bench/shapes/*.txt; do grep -qE '^(linear|mlp|geglu|swiglu)' "$file" || fail "$file has no problem"; done
