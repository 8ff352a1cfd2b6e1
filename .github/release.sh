#!/usr/bin/env bash
# Builds what a release of berth consists of: the command for each platform, a software bill of materials, checksums.
#
#   release.sh VERSION DIRECTORY          PLATFORMS="linux/amd64 …" for others than the default
#
# The same commit gives the same bytes on every machine: paths, build ids and the state of the checkout are left out.
set -euo pipefail
version=$1 out=$2
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
cyclonedx=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
cd "$(dirname "$0")/.."

tag=$(sed -n 's/^\ttag: \*"\([^"]*\)".*/\1/p' cue/images.cue)
if [ "$tag" != "${version#v}" ]; then
  echo "release.sh: the schema's images have tag $tag, not ${version#v}: cue/images.cue says which images a site runs" >&2
  exit 1
fi

mkdir -p "$out"
for platform in $platforms; do
  os=${platform%/*} arch=${platform#*/}
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false \
    -ldflags "-s -w -buildid= -X github.com/berth-hpc/berth/renderer/command.Version=$version" \
    -o "$out/berth_${version#v}_${os}_$arch" ./renderer/cmd/berth
done
go run "$cyclonedx" app -json -output-version 1.5 -noserial -main renderer/cmd/berth -output "$out/berth_${version#v}.cdx.json" .
(cd "$out" && sha256sum berth_* > SHA256SUMS)
