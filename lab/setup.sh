#!/bin/sh
# Installs what building Berth and running the lab in a box need and this machine lacks: Debian packages, and Go.
# Quiet when there is nothing to do. On a machine that is not Debian's, or without root, it only says what is missing.
set -eu

go_version=1.26.8
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth-lab

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# command or file → Debian package. iptables and ipset are what enforces network policies, containernetworking-plugins
# is the pods' network, mmdebstrap and buildah build images without a registry, jq and curl are for people and tests; gcc is for the
# binding of NVIDIA's management library alone.
needs='
git:git make:make jq:jq curl:curl gcc:gcc /usr/include/stdio.h:libc6-dev
nsenter:util-linux ip:iproute2 modprobe:kmod
etcd:etcd-server containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins
nft:nftables iptables:iptables ipset:ipset conntrack:conntrack
mmdebstrap:mmdebstrap buildah:buildah
/etc/ssl/certs/ca-certificates.crt:ca-certificates
/usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring'

# Go is new enough if its minor version is at least ours: the modules ask for go 1.26.
has_go() {
    have=$(GOTOOLCHAIN=local go version 2> /dev/null) || return 1
    minor=${have#*go1.}
    [ "${minor%%[!0-9]*}" -ge 26 ]
}

PATH=$cache/go/bin:/usr/local/go/bin:$PATH:/usr/sbin:/sbin
missing=
for need in $needs; do
    what=${need%%:*}
    case $what in
    /*) [ -e "$what" ] ;;
    *) command -v "$what" > /dev/null 2>&1 ;;
    esac || missing="$missing ${need#*:}"
done
has_go || command -v go > /dev/null || missing="$missing golang-go"

if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || die "not installed:$missing; install them and try again"
    say "installing$missing"
    # Packages of daemons start them; the box runs its own, with its own configuration.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' > $policy
        chmod 0755 $policy
        trap 'rm -f $policy' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    { apt-get update && apt-get install --yes --no-install-recommends $missing; } > "$log" 2>&1 ||
        { tail -n 20 "$log" >&2; die "apt-get failed; its whole output is in $log"; }
    rm -f "$log"
fi

if ! has_go; then
    # Debian's own Go is too old to build with and too old to fetch another by itself, but it can fetch a module and check
    # it against the checksum database: Go's releases are modules too.
    arch=$(go env GOARCH)
    module=golang.org/toolchain@v0.0.1-go$go_version.linux-$arch
    say "fetching Go $go_version"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/go.XXXXXX")
    GOTOOLCHAIN=local GOFLAGS=-modcacherw GOMODCACHE=$work go mod download "$module" ||
        die "Go $go_version for $arch could not be fetched; install it by hand"
    # Module zips carry no modes.
    find "$work/$module/bin" "$work/$module/pkg/tool" -type f -exec chmod 0755 {} +
    rm -rf "$cache/go"
    mv "$work/$module" "$cache/go"
    rm -rf "$work"
    hash -r
    has_go || die "$cache/go/bin/go does not run"
fi
