#!/usr/bin/env bash
# The HTML report in a browser: the page tries itself (#selftest: keys, click, wheel, drag, search, sort, theme, frames).
# Without Chromium, or where it can't start, it checks the file only.
# ctest: slow
set -uo pipefail
epi=$1
here=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "report.sh: $1" >&2; exit 1; }
traces=$here/../trace/shared/article

printf 'region mlp_fwd\n memsets = 0\n kernels = 5\n' >"$out/g.guess"
"$epi" check "$out/g.guess" "$traces/mlp_eager.json" "$traces/mlp_compiled.json" --report "$out/two.html" >/dev/null
[ $? = 1 ] || fail "check --report of two traces"
# A name that would end the script element, and one that would open another.
cat >"$out/odd.json" <<'JSON'
{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"</script><script>document.title='owned'</script><!--","pid":1,"tid":1,"ts":1,"dur":5},
{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":3,"dur":9},
JSON
# A name of templates, longer than a table's cell shows, and none at all.
printf '{"ph":"X","cat":"cpu_op","name":"%0300d","pid":1,"tid":1,"ts":20,"dur":5},
{"ph":"X","cat":"cpu_op","name":"","pid":1,"tid":1,"ts":30,"dur":5}]}' 7 >>"$out/odd.json"
printf 'ops = 4\n' >"$out/odd.guess"
"$epi" check "$out/odd.guess" "$out/odd.json" --report "$out/odd.html" >/dev/null || fail "check --report of odd names"
[ "$(grep -c '<script' "$out/odd.html")" = 2 ] || fail "a name got out of its script element"
grep -qE 'https?://' "$out/two.html" && fail "the page names an address"

# 200,000 events: 2000 steps of 20 x (3 ops, a launch, a kernel) and a region.
awk -v steps=2000 'BEGIN {
  printf "{\"deviceProperties\":[{\"id\":0,\"name\":\"Test\"}],\"traceEvents\":[{\"ph\":\"M\",\"name\":\"x\",\"pid\":1}\n"
  for (s = 0; s < steps; s++) {
    tid = 100 + s % 4
    printf ",{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":%d,\"ts\":%d,\"dur\":980}\n", s, tid, s * 1000
    for (k = 0; k < 20; k++) {
      t = s * 1000 + 2 + k * 48; c++
      printf ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::linear\",\"pid\":1,\"tid\":%d,\"ts\":%d,\"dur\":44}\n", tid, t
      printf ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::t\",\"pid\":1,\"tid\":%d,\"ts\":%d,\"dur\":5}\n", tid, t + 1
      printf ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::addmm\",\"pid\":1,\"tid\":%d,\"ts\":%d,\"dur\":30}\n", tid, t + 8
      printf ",{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":%d,\"ts\":%d,\"dur\":6,\"args\":{\"correlation\":%d}}\n", tid, t + 20, c
      printf ",{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"sm90_gemm_%d\",\"pid\":0,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"args\":{\"correlation\":%d,\"device\":0,\"stream\":%d}}\n", k, 7 + s % 8, t + 30, 20 + k, c, 7 + s % 8
    }
  }
  print "]}"
}' >"$out/big.json"
printf 'kernels = 40000\n' >"$out/big.guess"
"$epi" check "$out/big.guess" "$out/big.json" --report "$out/big.html" >/dev/null || fail "check --report of 200,000 events"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "report.sh: skipped the browser's part: there is no Chromium here"
    exit 0
}
for page in two odd big; do
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$out/profile" --window-size=1400,1000 \
        --dump-dom "file://$out/$page.html#selftest" >"$out/dom" 2>/dev/null
    # A page that fails leaves its elements behind; a browser that can't start leaves nothing.
    grep -q '<canvas' "$out/dom" || { echo "report.sh: skipped the browser's part: $browser gave no page"; exit 0; }
    result=$(grep -o '<pre id="selftest-result">[^<]*' "$out/dom" | sed 's/^[^>]*>//')
    echo "report.sh: $page $result"
    if [ "$page" = odd ]; then
        grep -q '<summary>0*.</summary>0*7</details>' "$out/dom" || fail "a long name is not folded"
        grep -q '>""<' "$out/dom" || fail "a name that is empty can't be seen"
    fi
    grep -q '<title>selftest ok</title>' "$out/dom" || fail "the page's own test failed: $page"
done
echo "report.sh: ok"
