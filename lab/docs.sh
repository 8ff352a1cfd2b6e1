#!/usr/bin/env bash
# Runs the commands of the documents, so that what they say works.
#
#   lab/docs.sh [FILE...]       default: README.md and docs/*.md
#
# Every block that begins with ```console is run, the blocks of one document in order and in one shell that starts in the
# root of the checkout with the box's environment. If lines of a block begin with "$ ", those are its commands, "> "
# continues the line before, and anything else is what they print, which is for the reader; otherwise all of the block is
# commands. A command that fails fails the document. A block after the line <!-- not run: REASON --> is left out, with its
# reason.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH="$PWD/bin:${XDG_CACHE_HOME:-$HOME/.cache}/berth-lab/go/bin:/usr/local/go/bin:/usr/sbin:/sbin:$PATH"
[ $# -gt 0 ] || { shopt -s nullglob; set -- README.md docs/*.md; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# script FILE writes the document's commands as a shell script that says where each comes from.
script() {
  awk -v file="$1" '
    function quote(s) { gsub(/\047/, "\047\\\047\047", s); return "\047" s "\047" }
    function step(line, command) { if (command != "") print "step " quote(file ":" line) " " quote(command) "\n" command }
    function prompts(n,   i, command, line, first) {
      for (i = 1; i <= n; i++) {
        line = block[i]
        if (line ~ /^[$] /) { step(first, command); command = substr(line, 3); first = start + i }
        else if (line ~ /^> ?/ && command != "") { sub(/^> ?/, "", line); command = command "\n" line }
        else { step(first, command); command = "" }
      }
      step(first, command)
    }
    function all(n,   i, command) {
      for (i = 1; i <= n; i++) command = command (i > 1 ? "\n" : "") block[i]
      step(start + 1, command)
    }
    /^[ \t]*<!-- not run: .* -->[ \t]*$/ { reason = $0; sub(/.*not run: /, "", reason); sub(/ -->.*/, "", reason); next }
    /^[ \t]*```console[ \t]*$/ && !inside { inside = 1; start = NR; n = prompted = 0; indent = match($0, /`/) - 1; next }
    /^[ \t]*```[ \t]*$/ && inside {
      if (reason != "") print "left_out " quote(file ":" start) " " quote(reason)
      else if (prompted) prompts(n)
      else all(n)
      inside = 0; reason = ""; next
    }
    inside { block[++n] = substr($0, indent + 1); if (block[n] ~ /^[$] /) prompted = 1; next }
    NF { reason = "" }
    END { if (inside) print "echo " quote(file ":" start ": the block is not closed") " >&2; exit 1" }' "$1"
}

for file in "$@"; do
  {
    cat <<'HEAD'
set -euo pipefail
step() { now=$1; printf '%s: %s\n' "$1" "$2"; }
left_out() { echo "$1: not run: $2"; }
trap 'status=$?; [ $status = 0 ] || echo "${now:-}: failed with $status" >&2' EXIT
if [ -x bin/box ] && environment=$(bin/box env 2>/dev/null); then eval "$environment"; fi
HEAD
    script "$file"
  } >"$work/script"
  began=$SECONDS
  if timeout --foreground "${DOCS_TIMEOUT:-3600}" bash "$work/script" </dev/null; then
    echo "ok   $file, $(grep -c '^step ' "$work/script" || true) commands in $((SECONDS - began)) s"
  else
    echo "FAIL $file after $((SECONDS - began)) s"
    status=1
  fi
done
exit $status
