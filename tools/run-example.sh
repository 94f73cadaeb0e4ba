#!/bin/bash
# `make run`: the main job on a real example. usage: tools/run-example.sh HUTCH OUT_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
hutch=$1
out=$2

rm -rf "$out"
show() {
    printf '$'
    printf ' %q' "$@"
    printf '\n'
}
set -- "$hutch" run --input examples/sales.csv --out "$out" examples/report.py inputs/sales.csv
show "$@"
status=0
"$@" </dev/null || status=$?
if [ "$status" -ne 0 ]; then
    echo "hutch: the example ended with exit code $status" >&2
    exit "$status"
fi

echo
echo "Collected in $out:"
(cd "$out" && find . -type f -printf '%8s bytes  %P\n' | sort -k3)
missing=0
for file in report/summary.csv report/summary.json report/revenue.png; do
    [ -s "$out/$file" ] || { echo "hutch: $file was not collected" >&2; missing=1; }
done
[ "$missing" -eq 0 ] || exit 1
echo
echo "$out/report/summary.csv:"
sed 's/^/    /' "$out/report/summary.csv"
