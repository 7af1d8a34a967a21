#!/usr/bin/env bash
# Every row of a .def has its doc and its test: commands, pointwise ops, passes, analyses, CPU kernels, environment variables.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
miss() { echo "docs: $*"; bad=1; }
rows() { [ -f "$2" ] || return 0; grep -oE "^$1\([A-Za-z0-9_]+" "$2" | sed -E 's/.*\(//'; }

for command in $(rows 'EP_COMMAND(_RUN)?' cli/commands.def); do
    [ -f "docs/cli/$command.md" ] || miss "docs/cli/$command.md is missing"
    [ -f "tests/cli/$command.sh" ] || miss "tests/cli/$command.sh is missing"
done
for pass in $(rows EP_PASS src/run/pass/passes.def); do
    ls tests/pass/"$pass"*.ir >/dev/null 2>&1 || miss "tests/pass/$pass*.ir is missing"
done
for analysis in $(rows EP_ANALYSIS src/read/analyze/analyses.def); do
    grep -rqlw "$analysis" docs tests || miss "analysis $analysis has neither doc nor test"
done
for kernel in $(rows EP_CPU_KERNEL src/run/backend/cpu/cpu_kernels.def); do
    grep -rq "$kernel" src/run/backend/cpu || miss "kernel $kernel is nowhere"
done
for name in $(grep -oE '\]\([a-z_/.-]+\.md\)' README.md CONTRIBUTING.md | sed -E 's/.*\]\((.*)\)/\1/' | sort -u); do
    [ -f "$name" ] || miss "a link to $name leads nowhere"
done
while IFS=: read -r file link; do
    target=$(dirname "$file")/$(sed -E 's/.*\]\(([^)#]+).*/\1/' <<<"$link")
    [ -e "$target" ] || miss "$file links to $target, which is not there"
done < <(grep -roE '\]\([A-Za-z0-9_./-]+\.md[^)]*\)' docs || true)
for test in $(grep -ohE '`test_[a-z0-9_]+\.c`' docs/*.md | tr -d '`' | sort -u); do
    find tests -name "$test" | grep -q . || miss "docs name $test, which is not there"
done
for name in $(grep -oE '`[a-z0-9_]+_[a-z0-9_]+`' docs/needs.md | tr -d '`' | sort -u); do
    grep -rqw "$name" tests || miss "docs/needs.md names the test $name, which is not there"
done
for name in $(grep -rhoE 'getenv\("EPILOGUE_[A-Z_]+' src cli | grep -oE 'EPILOGUE_[A-Z_]+' | sort -u); do
    grep -q "\`$name\`" docs/using.md || miss "docs/using.md does not tell what $name does"
done
for example in examples/*.c; do
    [ "$(wc -l <"$example")" -lt 80 ] || miss "$example has 80 lines or more"
done
exit $bad
