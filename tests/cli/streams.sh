#!/usr/bin/env bash
# Output that is lost is told (a full disk, a closed stream), and no output is written over what is read.
set -uo pipefail
epi=$1
trace=$2/../trace/shared/article/mlp_eager.json
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "streams.sh: $1" >&2; cat "$tmp/err" >&2; exit 1; }
cp "$trace" "$tmp/t.json"
printf 'kernels > 0\n' >"$tmp/g.guess"
commands=("explain $tmp/t.json" "diff $tmp/t.json $tmp/t.json" "list $tmp/t.json" "check $tmp/g.guess $tmp/t.json"
    "guess $tmp/t.json" "info" "--help" "explain --help")
"$epi" --help | grep -q "^  kernels" && "$epi" kernels >"$tmp/out" 2>/dev/null && commands+=("kernels" "kernels --json")
for c in "${commands[@]}"; do
    if [ -w /dev/full ]; then
        "$epi" $c >/dev/full 2>"$tmp/err"
        [ $? -eq 2 ] && grep -q "could not be written" "$tmp/err" || fail "$c: a full disk is not told"
    fi
    "$epi" $c >&- 2>"$tmp/err"
    [ $? -eq 2 ] && grep -q "could not be written" "$tmp/err" || fail "$c: a closed output is not told"
done
# a file that is opened does not take the place of the closed output
"$epi" list --write "$tmp/part.json" "$tmp/t.json" >&- 2>"$tmp/err" || true
head -c 1 "$tmp/part.json" | grep -q '{' || fail "the output ran into the file"
keeps() {
    "$epi" "$@" >/dev/null 2>"$tmp/err"
    [ $? -eq 2 ] && grep -q "would overwrite what is read" "$tmp/err" || fail "not refused: $*"
    cmp -s "$trace" "$tmp/t.json" && [ "$(cat "$tmp/g.guess")" = "kernels > 0" ] || fail "overwritten: $*"
}
ln "$tmp/t.json" "$tmp/link.json"
keeps list --write "$tmp/t.json" "$tmp/t.json"
keeps list --write "$tmp/link.json" "$tmp/t.json"
keeps explain --report "$tmp/t.json" "$tmp/t.json"
keeps check --report "$tmp/g.guess" "$tmp/g.guess" "$tmp/t.json"
keeps check --junit "$tmp/t.json" "$tmp/g.guess" "$tmp/t.json"
keeps guess --output "$tmp/t.json" "$tmp/t.json"
# what can't be written is told before the work, not after it
refused() {
    "$epi" "$@" >"$tmp/out" 2>"$tmp/err"
    [ $? -eq 2 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && [ ! -s "$tmp/out" ] || fail "not refused at once: $*"
}
refused explain --report "$tmp/none/page.html" "$tmp/t.json"
refused explain --report "$tmp" "$tmp/t.json"
if "$epi" run --help >"$tmp/out" 2>/dev/null; then
    small="linear --batch 2 --seq 3 --dim 16 --out 8"
    refused run $small --report "$tmp/none/page.html"
    refused run $small --trace-dir "$tmp/none/deeper"
    refused run $small --trace-dir "$tmp/t.json"
    refused run $small --dump all
    "$epi" run $small --trace-dir "$tmp/made/" --report "$tmp/page.html" >/dev/null 2>"$tmp/err" || fail "a new folder"
    [ -s "$tmp/made/linear-eager.json" ] && [ -s "$tmp/page.html" ] || fail "nothing in the new folder"
fi
