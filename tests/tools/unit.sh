#!/bin/bash
# unit.sh BUILD - checks the exposure of the systemd unit.
#
# systemd-analyze security rates a unit from 0 (sandboxed) to 10 (exposed). Our unit keeps only the
# access that the server needs: the network, unix sockets, and the boot id in /proc/sys.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/plain}
. tests/tools/tap.sh

# The limit, in tenths of a point.
exposure_max=12

unit=$build/src/cli/sluice.service
if ! command -v systemd-analyze >/dev/null; then
    echo "ok 1 - the exposure of the service # SKIP there is no systemd-analyze: package systemd"
    echo 1..1
    exit 0
fi

exposure() { # exposure UNIT
    systemd-analyze security --offline=yes --no-pager --threshold="$exposure_max" "$1"
}
weaker() { # weaker NAME: the unit without this line
    mkdir -p "$work/$1"
    grep -v "^$1=" "$unit" >"$work/$1/sluice.service"
    exposure "$work/$1/sluice.service"
}
passes "the service is exposed to at most $exposure_max tenths of a point" exposure "$unit"
for name in CapabilityBoundingSet SystemCallFilter; do
    fails "without $name it would be to more" 'Overall exposure level' weaker "$name"
done
done_testing
