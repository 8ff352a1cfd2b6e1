#!/usr/bin/env bash
# Runs the e2e tests on the lab in a box, which they bring up if it is not.
#
#   lab/e2e.sh smoke            the thin path: push, sbatch, worker, and back to zero
#   lab/e2e.sh all [i/n]        everything, or shard i of n of what has been seen to pass (e2e/durations)
#   lab/e2e.sh REGEXP [i/n]     the tests whose names match, in any case: `lab/e2e.sh network`
#   BERTH_E2E_SLURM=26.05 lab/e2e.sh …
#                               the same with that release of Slurm, beginning with the upgrade to it; ends the box, since
#                               there is no way back
#   lab/e2e.sh soak             half an hour (BERTH_E2E_SOAK, a Go duration) of load and random kills
#
# The test that takes the box down comes last. Every test prints how long it took; the last lines are go test's own and
# the counts. Ends with 0 if every test passed.
set -euo pipefail
cd "$(dirname "$0")"

what=${1:-all} shard=${2:-}
export PATH="$PWD/../bin:${XDG_CACHE_HOME:-$HOME/.cache}/berth-lab/go/bin:/usr/local/go/bin:/usr/sbin:/sbin:$PATH"
export GOFLAGS=${GOFLAGS:--p=2 -buildvcs=false}

if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
  if [ "$what" = smoke ]; then
    echo "smoke e2e: skipped: the lab in a box needs root on Linux"
    exit 0
  fi
  echo "lab/e2e.sh: the lab in a box needs root on Linux" >&2
  exit 1
fi

index=1 count=1
if [ -n "$shard" ]; then
  if ! [[ $shard =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] || ((BASH_REMATCH[1] > BASH_REMATCH[2])); then
    echo "lab/e2e.sh: '$shard' is not a shard; write for example 2/4" >&2
    exit 2
  fi
  index=${BASH_REMATCH[1]} count=${BASH_REMATCH[2]}
fi

timeout=60m
case $what in
  smoke) pattern='^TestSmoke$' ;;
  all) pattern='.' ;;
  soak)
    pattern='^TestSoak$' timeout=24h
    export BERTH_E2E_SOAK=${BERTH_E2E_SOAK:-30m}
    ;;
  *) pattern=$what ;;
esac

# The tests by name. A soak and a bench are asked for by name only: they are no part of "everything".
binary=$(mktemp -d)
trap 'rm -rf "$binary"' EXIT
go test -c -o "$binary/e2e.test" ./e2e
names=$("$binary/e2e.test" -test.list '^Test' | grep -iE -- "$pattern" || true)
if [ "$what" != soak ]; then names=$(grep -vE '^Test(Soak|Bench)' <<<"$names" || true); fi
if [ -z "$names" ]; then
  echo "lab/e2e.sh: no test's name matches '$what'; there are:" >&2
  "$binary/e2e.test" -test.list '^Test' | sed 's/^/  /' >&2
  exit 2
fi

# Shards of about the same length: the longest test first, each to the shard that has least so far. It depends on the
# names and on e2e/durations alone, so all shards of one commit agree. A test without a recorded duration has not been
# seen to pass yet: it runs by its name and with everything, but in no shard.
if [ -n "$shard" ]; then names=$(awk 'FILENAME == ARGV[1] { seen[$1] = 1; next } $1 in seen' e2e/durations - <<<"$names"); fi
names=$(awk -v index_="$index" -v count="$count" '
  FILENAME == ARGV[1] { if ($1 !~ /^#/) seconds[$1] = $2; next }
  { print ($1 in seconds ? seconds[$1] : 60), $1 }' e2e/durations - <<<"$names" |
  sort -k1,1nr -k2,2 |
  awk -v shard="$index" -v count="$count" '
  { least = 1; for (i = 2; i <= count; i++) if (load[i] + 0 < load[least] + 0) least = i
    load[least] += $1; if (least == shard) print $2 }')
if [ -z "$names" ]; then
  echo "e2e: shard $shard is empty: there are fewer tests than shards"
  exit 0
fi

# Up with this checkout, whatever the box ran before; on a box that is up already this is quick.
../bin/box up --until=site
release=${BERTH_E2E_SLURM:-}
if [ -n "$release" ]; then ../bin/box images --slurm "$release"; fi

log=$binary/log
: >"$log"
began=$SECONDS status=0
tests() { # NAMES...
  local list
  list=$(printf '%s|' "$@")
  BERTH_E2E=1 go test -count=1 -v -timeout "$timeout" -run "^(${list%|})\$" ./e2e 2>&1 | tee -a "$log"
}

runs() { ../bin/box kubectl get statefulset -n slurm slurm-controller -o jsonpath='{.spec.template.spec.containers[0].image}'; }
upgrade=TestUpgradeSlurm
if [ -n "$release" ] && [[ $(runs) != *"$release" ]]; then
  BERTH_E2E_SLURM='' BERTH_E2E_UPGRADE=$release tests $upgrade || status=1
  if ((status)); then
    echo "e2e: the box stays up, for a look at what failed; nothing else can run with Slurm $release"
    exit $status
  fi
fi

# The one that ends the box.
last='^TestDown$'
mapfile -t most < <(grep -vE "$last${release:+|^$upgrade\$}" <<<"$names" || true)
if ((${#most[@]})); then tests "${most[@]}" || status=1; fi
for test in $(grep -E "$last" <<<"$names" | sort || true); do
  if ((status)); then
    echo "e2e: the box stays up, for a look at what failed; $test is left out"
    continue
  fi
  ../bin/box up --until=site
  BERTH_E2E_DOWN=1 tests "$test" || status=1
done

count() { grep -c -- "^--- $1" "$log" || true; }
if [ -n "$release" ] && ! ((status)); then ../bin/box down --purge; fi
echo "e2e: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped in $((SECONDS - began)) s"
exit $status
