#!/bin/sh
# Builds the platform's images from images/*/Dockerfile, with docker or buildah, whichever is there.
#
#   images/build.sh [-b docker|buildah] [-r REGISTRY] [-t TAG] [-s SLURM] [-B BASE] [-p] [IMAGE...]
#
#   -b  builder ($BUILDER; default: docker if it answers, else buildah)
#   -r  registry and path before each name ($REGISTRY; default localhost/berth)
#   -t  tag ($TAG; default dev)
#   -s  Slurm release, major.minor ($SLURM_VERSION; default 24.11)
#   -B  Debian image to build on ($DEBIAN; default debian:trixie-slim); its suite must serve that release
#   -p  push each image after it is built
#
# Names are those of the directories; none: all. The common base `slurm` is built first when an image needs it. The
# binaries guard, prolog-slurmctld, autoscaler, advisor and mps are taken from bin/ (`make build`). With buildah nothing is pulled: BASE must be in local
# storage already.
set -eu

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
say() { printf '%s\n' "$*" >&2; }
die() { say "images/build.sh: $*"; exit 1; }

builder=${BUILDER:-} registry=${REGISTRY:-localhost/berth} tag=${TAG:-dev} slurm=${SLURM_VERSION:-24.11}
debian=${DEBIAN:-debian:trixie-slim} push=
while getopts b:r:t:s:B:ph option; do
    case $option in
    b) builder=$OPTARG ;; r) registry=$OPTARG ;; t) tag=$OPTARG ;; s) slurm=$OPTARG ;; B) debian=$OPTARG ;; p) push=1 ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))

cd "$(dirname "$0")/.."
if [ -z "$builder" ]; then
    if command -v docker > /dev/null 2>&1 && docker info > /dev/null 2>&1; then builder=docker
    elif command -v buildah > /dev/null 2>&1; then builder=buildah
    else die "neither a running docker nor buildah is here; install one of them"
    fi
fi

build() { # NAME BUILD-ARGUMENT...
    it=$1; shift
    image=$registry/$it:$tag
    started=$(date +%s)
    case $builder in
    docker) docker build --quiet -t "$image" "$@" -f "images/$it/Dockerfile" . > /dev/null ;;
    # --layers keeps the steps of earlier builds, so that a changed script does not install Debian again.
    buildah) buildah bud --quiet --isolation chroot --pull-never --layers -t "$image" "$@" -f "images/$it/Dockerfile" . > /dev/null ;;
    *) die "no builder named '$builder': docker or buildah" ;;
    esac || die "$image: the build failed (above)"
    say "$image $(($(date +%s) - started))s"
    if [ -n "$push" ]; then "$builder" push "$image" > /dev/null || die "$image: the push failed (above)"; fi
}

need_binary() { # NAME IMAGE
    [ -x "bin/$1" ] || die "bin/$1 is missing and $2 needs it: run \`make build\` first"
}

[ $# -gt 0 ] || set -- slurm-controller slurm-accounting slurm-rest slurm-login slurm-worker slurm-database berth-autoscaler berth-advisor
base_built=
for name in "$@"; do
    [ -f "images/$name/Dockerfile" ] || die "no image named '$name'; there are: $(ls images/*/Dockerfile | xargs -n1 dirname | xargs -n1 basename | tr '\n' ' ')"
    case $name in
    slurm-database) build "$name" --build-arg "DEBIAN=$debian" ;;
    berth-autoscaler) need_binary autoscaler "$name"; build "$name" ;;
    berth-advisor) need_binary advisor "$name"; build "$name" ;;
    *)
        if [ -z "$base_built" ]; then
            build slurm --build-arg "BASE=$debian" --build-arg "SLURM_VERSION=$slurm"
            base_built=1
        fi
        [ "$name" != slurm ] || continue
        [ "$name" != slurm-controller ] || { need_binary guard "$name"; need_binary prolog-slurmctld "$name"; }
        [ "$name" != slurm-worker ] || need_binary mps "$name"
        build "$name" --build-arg "BASE=$registry/slurm:$tag"
        ;;
    esac
done
