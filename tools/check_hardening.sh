#!/bin/sh
# check_hardening.sh FILE... - checks that programs and libraries have the usual protections.
#
# Each file must be a position-independent program (PIE) or library, and have full RELRO with
# BIND_NOW, a stack that is not executable, the stack protector, fortified functions of libc, and
# landing pads for indirect branches (x86-64: CET; arm64: BTI or signed return addresses). The
# script cannot check -fstack-clash-protection, which leaves no trace in the file.
set -eu
[ "${1-}" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
[ $# -gt 0 ] || { echo "usage: check_hardening.sh FILE..." >&2; exit 2; }

bad=0
lacks() { # lacks FILE WHAT
    echo "$1: $2" >&2
    bad=1
}

# The first instruction of a function that was compiled from our own sources.
first_of() { # first_of FILE FUNCTION
    objdump -d --no-show-raw-insn --disassemble="$2" "$1" |
        sed -n "/<$2>:\$/{n;s/^[^:]*:[[:space:]]*//p;q;}"
}

check() {
    file=$1
    if ! readelf -hW "$file" >"$work/header" 2>/dev/null; then
        lacks "$file" "not a program or library"
        return
    fi
    readelf -lW "$file" >"$work/segments"
    readelf -dW "$file" >"$work/dynamic"
    readelf -sW "$file" | awk '$7 == "UND" { sub(/@.*/, "", $8); print $8 }' >"$work/needs"

    grep -q 'Type: *DYN' "$work/header" || lacks "$file" "no PIE (-fPIE -pie)"
    grep -q 'GNU_RELRO' "$work/segments" || lacks "$file" "no RELRO (-Wl,-z,relro)"
    grep -q 'BIND_NOW\|Flags:.* NOW' "$work/dynamic" || lacks "$file" "no BIND_NOW (-Wl,-z,now)"
    if grep 'GNU_STACK' "$work/segments" | grep -q 'RWE'; then
        lacks "$file" "the stack is executable (-Wl,-z,noexecstack)"
    fi
    grep -qx '__stack_chk_fail' "$work/needs" ||
        lacks "$file" "no stack protector (-fstack-protector-strong)"
    grep -v '^__stack_chk' "$work/needs" | grep -q '^__.*_chk$' ||
        lacks "$file" "no fortified function (-D_FORTIFY_SOURCE)"

    function=$(readelf -sW "$file" | awk '$4 == "FUNC" && $5 == "GLOBAL" && $7 != "UND" &&
        $8 ~ /^(main|sluice_status_word)$/ { print $8; exit }')
    if [ -z "$function" ]; then
        lacks "$file" "it has neither main() nor sluice_status_word(): nothing to inspect"
        return
    fi
    first=$(first_of "$file" "$function")
    case $(sed -n 's/^ *Machine: *//p' "$work/header"):$first in
        *X86-64:endbr64*) ;;
        *X86-64:*) lacks "$file" "no CET: $function() begins with \"$first\" (-fcf-protection)" ;;
        AArch64:*bti* | AArch64:*paciasp*) ;;
        AArch64:*)
            lacks "$file" "no BTI: $function() begins with \"$first\" (-mbranch-protection=standard)"
            ;;
    esac
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$@"; do check "$file"; done
exit "$bad"
