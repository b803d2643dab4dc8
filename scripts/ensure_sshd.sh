#!/bin/sh
# The tests start sshd themselves, on loopback; this sees that the program is there. Without it they are skipped.
set -eu
[ -x /usr/sbin/sshd ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "setup: /usr/sbin/sshd is missing: tests over SSH will be skipped; install openssh-server" >&2
    exit 0
fi
echo "setup: installing openssh-server, for tests" >&2
# Only the program is wanted: no service may start by this.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap 'rm -f $policy' EXIT
fi
apt-get update -qq >/dev/null || true
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openssh-server >/dev/null ||
    echo "setup: openssh-server could not be installed: tests over SSH will be skipped" >&2
