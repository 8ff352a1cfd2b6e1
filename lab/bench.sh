#!/usr/bin/env bash
# Prints the project's figures, one line each: NAME value unit ratio goal ok|short|undecided. "-" stands for what a figure
# does not have. With an argument only the figures whose names contain it.
#
#   lab/bench.sh [NAME]
#
# Parts: render (the renderer beside `cue vet`, helm and kustomize), push and sbatch (on the box, if it is up), the advisor's service, the learner, and the simulator's own. What
# can't be measured here is named on standard error, and is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-}
bin=$PWD/bin
export PATH="$bin:${XDG_CACHE_HOME:-$HOME/.cache}/berth-lab/go/bin:/usr/local/go/bin:/usr/sbin:/sbin:$PATH"
export GOFLAGS=${GOFLAGS:--p=2 -buildvcs=false}

skip() { echo "bench: $1: $2" >&2; }

# wanted FIGURE...: whether one of the figures is asked for.
wanted() {
  local figure
  for figure in "$@"; do [[ $figure == *"$name"* ]] && return 0; done
  return 1
}

# print keeps the lines that are asked for.
print() { awk -v name="$name" 'NF >= 6 && index($1, name)'; }

# elapsed COMMAND...: its wall time in microseconds; its output goes to the log.
elapsed() {
  local from=${EPOCHREALTIME/[.,]/}
  "$@" >>"$work/log" 2>&1 || { echo "bench: $* failed:" >&2; tail -5 "$work/log" >&2; return 1; }
  echo $((${EPOCHREALTIME/[.,]/} - from))
}

# Rendering lab.cue against what `cue vet -c` alone takes for it: nine rounds, the two one after the other in each. The
# figure is the median ratio; of nine values the second and the eighth enclose the median with 96 %, and the verdict is
# theirs: ok if both are within the goal, short if both are above it.
render() {
  local goal=1.5 round vet berth
  [ -x "$bin/berth" ] && [ -x "$bin/cue" ] || { skip render-lab "run make build first"; return 0; }
  cp -r --parents cue cue.mod clusters components/chart "$work"
  [ ! -d overlays ] || cp -r overlays "$work"
  cd "$work"
  elapsed cue vet -c ./clusters/lab.cue >/dev/null && elapsed berth render lab >/dev/null || return 1
  for round in {1..9}; do
    vet=$(elapsed cue vet -c ./clusters/lab.cue) || return 1
    berth=$(elapsed berth render lab) || return 1
    echo "$berth $vet"
  done >rounds
  cd - >/dev/null
  awk '{ print $1 / 1000, $1 / $2 }' "$work/rounds" >"$work/ratios"
  awk -v goal=$goal -v median="$(sort -n "$work/ratios" | awk 'NR == 5 { print $1 }')" '
    { r[NR] = $2 } END {
      verdict = r[8] <= goal ? "ok" : r[2] > goal ? "short" : "undecided"
      printf "render-lab %.0f ms %.2f %s %s\n", median, r[5], goal, verdict }' < <(sort -k2,2n "$work/ratios")
}

# kustomize's command, of the release whose library go.mod has; it is no part of berth.
kustomize() {
  local tools=${XDG_CACHE_HOME:-$HOME/.cache}/berth-lab/tools
  export PATH="$tools:$PATH"
  [ -x "$tools/kustomize" ] || GOBIN="$tools" go install -ldflags '-s -w' sigs.k8s.io/kustomize/kustomize/v5@v5.8.2 >&2
}

# What needs the box: from a push to the cluster at it, and from sbatch to the job's first line with its parts.
box() { # TEST
  BERTH_E2E=1 BERTH_E2E_BENCH=1 go -C lab test -count=1 -v -timeout 45m -run "^$1\$" ./e2e >"$work/box" 2>&1 ||
    { skip "$1" "failed:"; grep -vE '^(=== |[a-z-]+(/[a-z-]+)? [0-9.]+ s )' "$work/box" | tail -40 >&2; return 1; }
  cat "$work/box"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

if wanted render-lab; then (render) | print || status=1; fi

# The renderer beside cue, helm and kustomize: processor time, and memory.
if wanted load-lab inflate-lab inflate-lab/without-start render-1000-pools render-1000-pools/memory; then
  if ! [ -x "$bin/berth" ] || ! [ -x "$bin/cue" ]; then
    skip renderer "run make build first"
  elif ! kustomize || ! go build -ldflags '-s -w' -o bin/ helm.sh/helm/v3/cmd/helm >&2; then
    skip renderer "kustomize or helm could not be built"
  elif BERTH_BENCH=1 BERTH_BENCH_NAME="$name" go test -count=1 -v -timeout 2h -run '^TestBench$' ./renderer/benchmark >"$work/renderer" 2>&1; then
    print <"$work/renderer" || status=1
  else
    cat "$work/renderer" >&2
    status=1
  fi
fi

up=
if [ -x "$bin/box" ] && [ "$(id -u)" = 0 ] && "$bin/box" status >/dev/null 2>&1; then up=1; fi
if wanted push-to-converged; then
  if [ -n "$up" ]; then box TestBenchPush | print || status=1; else skip push-to-converged "the box is not up (make up)"; fi
fi
if wanted sbatch-to-first-line sbatch-to-first-line/{slurm-allocates,pod-starts,node-registers,job-starts,without-prolog}; then
  if [ -n "$up" ]; then box TestBenchFirstLine | print || status=1; else skip sbatch-to-first-line "the box is not up (make up)"; fi
fi
if wanted sbatch-while-powering-down; then
  if [ -n "$up" ]; then box TestBenchPoweringDown | print || status=1; else skip sbatch-while-powering-down "the box is not up (make up)"; fi
fi
if wanted 1000-jobs 1000-jobs/{without-prolog,prolog}; then
  if [ -n "$up" ]; then box TestBenchProlog | print || status=1; else skip 1000-jobs "the box is not up (make up)"; fi
fi

# The autoscaler's: one decision for 1,000 nodes beside one plain decode of the same answer.
if wanted decision-1000-nodes decision-1000-nodes/memory; then
  if BERTH_BENCH=1 go test -count=1 -v -run '^TestBenchDecision$' ./components/autoscaler/decision >"$work/decision" 2>&1; then
    print <"$work/decision" || status=1
  else
    cat "$work/decision" >&2
    status=1
  fi
fi

# Its one call to a real slurmctld with 100,000 jobs in the queue, beside the same with none.
if wanted poll-100000-jobs poll-100000-jobs/unchanged; then
  if [ -z "${BERTH_SLURM_ROOT:-}" ]; then
    skip poll-100000-jobs "set BERTH_SLURM_ROOT to a root file system with Slurm"
  elif BERTH_BENCH=1 go test -count=1 -v -run '^TestBenchPollWithJobs$' ./components/slurmrest >"$work/poll" 2>&1; then
    print <"$work/poll" || status=1
  else
    cat "$work/poll" >&2
    status=1
  fi
fi

# From sbatch to the last pod's creation, beside a poller of 30 s; eight minutes.
if wanted scale-up-1-nodes scale-up-16-nodes; then
  if [ -z "${BERTH_SLURM_ROOT:-}" ]; then
    skip scale-up "set BERTH_SLURM_ROOT to a root file system with Slurm"
  elif BERTH_BENCH=1 go test -count=1 -v -timeout 20m -run '^TestBenchScaleUp$' ./components/autoscaler/scaler >"$work/scale" 2>&1; then
    print <"$work/scale" || status=1
  else
    cat "$work/scale" >&2
    status=1
  fi
fi

# The simulator's figures: it prints the same kind of lines.
if [ -x "$bin/advisor" ] && "$bin/advisor" sim bench --help >/dev/null 2>&1; then
  "$bin/advisor" sim bench | print || status=1
else
  skip sim "bin/advisor has no sim bench"
fi

# The advisor's service over its socket, beside the same policy in Python, in turn.
if wanted advisor-decide-p99 advisor-decisions-per-second; then
  if [ -x "$bin/advisor" ] && command -v python3 >/dev/null; then
    "$bin/advisor" serve bench | print || status=1
  else
    skip advisor-decide "needs bin/advisor (make build) and python3"
  fi
fi

# The learner's updates and inference beside PyTorch.
if wanted learner-update-{S,M,L,rlpd}/{1,2} learner-infer-{actor,critics}{,/cpu,/allocations}; then
  if [ -x "$bin/advisor" ]; then
    "$bin/advisor" train bench --name "$([[ $name == learner-* ]] && echo "$name")" | print || status=1
  else
    skip learner "needs bin/advisor (make build)"
  fi
fi
exit $status
