#!/bin/bash
# unit.sh BUILD - checks the systemd unit: systemd accepts every line of it, and its exposure is low.
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

# The unit has the path of the installed server; replace it with the path of this build. A warning fails
# the test.
verify() { # verify [SED-COMMAND]
    sed -e "s,^ExecStart=[^ ]*,ExecStart=$PWD/$build/src/server/sluice-server," -e "${1-}" "$unit" \
        >"$work/sluice.service"
    SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$work/sluice.service" 2>&1 |
        tee "$work/warnings"
    [ ! -s "$work/warnings" ]
}
passes "systemd accepts the unit" verify
fails "systemd rejects a credential without a value" 'Invalid syntax' verify 's/^SetCredential=secret:.*/SetCredential=secret:/'
fails "systemd rejects an unknown setting" 'Unknown key' verify 's/^LoadCredential=secret/LoadCredentials=secret/'

exposure() { # exposure UNIT
    systemd-analyze security --offline=yes --no-pager --threshold="$exposure_max" "$1"
}
weaker() { # weaker NAME: rate the unit without this line
    mkdir -p "$work/$1"
    grep -v "^$1=" "$unit" >"$work/$1/sluice.service"
    exposure "$work/$1/sluice.service"
}
passes "the exposure of the service is at most $exposure_max tenths of a point" exposure "$unit"
for name in CapabilityBoundingSet SystemCallFilter; do
    fails "without $name the exposure is higher" 'Overall exposure level' weaker "$name"
done
done_testing
