#!/bin/sh
# check_man.sh [ROOT] - mandoc finds no fault in a man page.
set -eu
cd "${1:-$(dirname "$0")/..}"
ls man/*.[1-9] >/dev/null
mandoc -T lint -W warning man/*.[1-9] >&2
