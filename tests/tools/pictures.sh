#!/bin/bash
# pictures.sh BUILD - tests the pictures of README.md and the scripts that generate them.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/tap.sh
build=${1:?usage: pictures.sh BUILD}
sluice=$build/src/cli/sluice
images=docs/images

for file in "$images"/*.svg; do
    passes "$file is well-formed, with a title and a description" python3 -c '
import sys, xml.etree.ElementTree as ElementTree
root = ElementTree.parse(sys.argv[1]).getroot()
for name in ("title", "desc"):
    assert root.find("{http://www.w3.org/2000/svg}" + name).text.strip()
' "$file"
    says "$file has colors for dark pages" 'prefers-color-scheme: dark' cat "$file"
    says "README.md shows $file" "]($file)" cat README.md
done

# ---- tools/record ----

passes "the recording shows what sluice run prints" tools/record --check "$sluice" "$images/run.svg"
sed 's/waiting for/looking at/' "$images/run.svg" >"$work/old.svg"
fails "a recording with a different text is out of date" 'out of date' \
    tools/record --check "$sluice" "$work/old.svg"
fails "record: wrong usage" 'tools/record SLUICE FILE.svg' tools/record

# ---- tools/chart ----

results=bench/results.json
passes "the chart and docs/bench.md show the saved results" \
    tools/chart --check "$results" "$images/bench.svg" docs/bench.md
# Different results: one ratio is doubled.
python3 - "$results" "$work/other.json" <<'END'
import json, sys
results = json.load(open(sys.argv[1]))
results["canal"]["ratios"][2]["value"] *= 2
json.dump(results, open(sys.argv[2], "w"))
END
fails "a chart of different results is rejected" 'bench.svg differs' \
    tools/chart --check "$work/other.json" "$images/bench.svg" docs/bench.md
sed '/<!-- chart -->/,/<!-- end of chart -->/s/ × |/0 × |/' docs/bench.md >"$work/bench.md"
fails "different numbers in the table are rejected" 'bench.md differs' \
    tools/chart --check "$results" "$images/bench.svg" "$work/bench.md"
passes "a chart is written" \
    tools/chart "$work/other.json" "$work/bench.svg" "$work/bench.md"
passes "the written chart is up to date" \
    tools/chart --check "$work/other.json" "$work/bench.svg" "$work/bench.md"
says "the chart accepts the output of the benchmark" 'flock(2) | [0-9.]* ×' sh -c "
    { echo '{\"canal\":'; '$build/bench/bench' --quick --json && echo '}'; } >'$work/quick.json'
    tools/chart '$work/quick.json'"
echo '{}' >"$work/empty.json"
fails "results without a ratio are rejected" 'has no ratio' tools/chart "$work/empty.json"
fails "chart: wrong usage" 'tools/chart --check' tools/chart

done_testing
