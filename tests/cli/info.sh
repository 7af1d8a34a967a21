#!/usr/bin/env bash
# epi info: text in 80 columns, JSON with its keys, bad options refused.
set -euo pipefail
epi=$1
export XDG_CACHE_HOME=$(mktemp -d)
trap 'rm -rf "$XDG_CACHE_HOME"' EXIT
fail() { echo "info.sh: $*"; exit 1; }
out=$("$epi" info)
grep -q "instruction set" <<<"$out" || fail "no instruction set"
grep -q "estimates" <<<"$out" || fail "estimates are not called so"
awk 'length($0) > 80 { print "too wide: " $0; bad = 1 } END { exit bad }' <<<"$out" || fail "lines over 80 columns"
json=$("$epi" info --json)
for key in '"machine"' '"peak_gflops"' '"read_gbs"' '"measured": false' '"isa"' '"libraries"'; do
    grep -q "$key" <<<"$json" || fail "no $key in the JSON"
done
EPILOGUE_ISA=portable "$epi" info | grep -q "instruction set portable" || fail "EPILOGUE_ISA is not obeyed"
for bad in "--nothing" "--device tpu" "--threads -1" "extra"; do
    if "$epi" info $bad >/dev/null 2>"$XDG_CACHE_HOME/err"; then fail "'$bad' was accepted"; fi
    [ "$(wc -l <"$XDG_CACHE_HOME/err")" -eq 1 ] || fail "'$bad' is not refused in one line"
done
"$epi" info --help | grep -q -- "--measure" || fail "no help"
