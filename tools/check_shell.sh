#!/bin/sh
# check_shell.sh [ROOT] - run shellcheck on all scripts.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "${1:-$(dirname "$0")/..}"

list=$(mktemp)
trap 'rm -f "$list"' EXIT
find . -path ./build -prune -o -path ./.git -prune -o -type f -print |
    while read -r path; do
        case $(head -c 20 "$path" | head -n 1 | tr -d '\0') in
            '#!/bin/sh'* | '#!/bin/bash'* | '#!/usr/bin/env bash'*) echo "$path" ;;
        esac
    done >"$list"
[ -s "$list" ] || { echo "there is no script to check" >&2; exit 1; }
tr '\n' '\0' <"$list" | xargs -0 shellcheck -x
