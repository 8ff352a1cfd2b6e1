# put-state VOLUME SHA256 < TAR: unpacks a state beside the one that is there.
set -eu
volume=$1 sum=$2
aside=$volume/.restored

rm -f -- "$volume/.before/.names"
rm -rf -- "$aside"
mkdir -m 0700 -- "$aside"
cat > "$aside/state.tar"
echo "$sum  $aside/state.tar" | sha256sum --check --status || { echo "what arrived is not what was sent" >&2; exit 1; }
tar --extract --file="$aside/state.tar" --directory="$aside" --no-same-owner --preserve-permissions
rm -- "$aside/state.tar"
# What the advisor did since, and that it was switched off by itself, is not to be forgotten.
[ ! -e "$volume/advisor" ] || rm -rf -- "$aside/advisor"
sync --file-system "$aside"
