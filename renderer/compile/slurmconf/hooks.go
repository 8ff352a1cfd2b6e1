package slurmconf

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// hooksFile holds all hooks of a site, and calls the image's own ahead of them. slurmctld sends a program to workers with the rest of the configuration only where Prolog
// or Epilog name it by a relative path, and never a HealthCheckProgram; so one file is all three, and SLURM_SCRIPT_CONTEXT
// tells it which. Workers find what slurmctld sent below /run/slurm/conf.
const (
	hooksFile = "site-hooks"
	hooksPath = "/run/slurm/conf/" + hooksFile
)

// hookParameters are slurm.conf's part in the hooks. The image's own are called from the file too, because Slurm drains each node that
// lacks its Epilog, as workers do that still run an image from before it.
func hookParameters(h site.Hooks) ([]parameter, error) {
	parameters := []parameter{{"Prolog", hooksFile}, {"Epilog", hooksFile}}
	if len(h.HealthCheck) > 0 {
		interval, err := ParseTime(h.Interval)
		if err != nil || interval.unlimited {
			return nil, fmt.Errorf("slurm.hooks.interval: %q is no time between two health checks; write for example 5m", h.Interval)
		}
		parameters = append(parameters, parameter{"HealthCheckProgram", hooksPath}, parameter{"HealthCheckInterval", interval.SecondsText()},
			parameter{"HealthCheckNodeState", "ANY"})
	}
	return parameters, nil
}

// hooks writes the file.
func hooks(h site.Hooks) (string, error) {
	var prolog, epilog, health strings.Builder
	for _, kind := range []struct {
		field   string
		scripts map[string]string
		call    string
		out     *strings.Builder
	}{{"prolog", h.Prolog, "step", &prolog}, {"epilog", h.Epilog, "step", &epilog}, {"healthCheck", h.HealthCheck, "check", &health}} {
		for _, name := range sortedKeys(kind.scripts) {
			text, err := embedded(kind.call, name, kind.scripts[name])
			if err != nil {
				return "", fmt.Errorf("slurm.hooks.%s.%s: %w", kind.field, name, err)
			}
			kind.out.WriteString(text)
		}
	}
	return fmt.Sprintf(hooksScript, programs, prolog.String(), epilog.String(), health.String()), nil
}

// embedded is a call of the shell function with the script on descriptor 3, where its interpreter reads it: a file of its own
// would have to lie where jobs cannot write.
func embedded(call, name, script string) (string, error) {
	first, _, _ := strings.Cut(script, "\n")
	words := strings.SplitN(strings.TrimSpace(strings.TrimPrefix(first, "#!")), " ", 2)
	if !strings.HasPrefix(first, "#!") || !strings.HasPrefix(words[0], "/") || strings.ContainsAny(first, "\r'") {
		return "", fmt.Errorf("the script does not begin with #!/interpreter")
	}
	if err := checkWord("its name", name); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(script))
	mark := "end-of-" + name + "-" + hex.EncodeToString(sum[:])[:8]
	interpreter := "'" + strings.Join(words, "' '") + "'"
	if !strings.HasSuffix(script, "\n") {
		script += "\n"
	}
	return fmt.Sprintf("%s '%s' %s 3<<'%s' || exit\n%s%s\n", call, name, interpreter, mark, script, mark), nil
}

// hooksScript is the program around the hooks: %[1]s is where the image has its own programs, then prologs, epilogs, checks.
const hooksScript = `#!/bin/sh
# Made by berth from slurm.hooks of the site. slurmd runs it as root as Prolog, as Epilog and as HealthCheckProgram.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# step NAME INTERPRETER [ARGUMENT]: runs the script that stands on descriptor 3. Its failure is the hook's: Slurm drains the node,
# and requeues the job where a prolog failed.
step() {
    name=$1; shift
    "$@" /dev/fd/3 < /dev/null && return
    status=$?
    echo "$SLURM_SCRIPT_CONTEXT $name ended with $status" >&2
    return "$status"
}

# check NAME INTERPRETER [ARGUMENT]: drains the node where the script on descriptor 3 fails or takes too long, with what it said
# last as the reason. slurmd ends a health check after 60 s.
check() {
    name=$1; shift
    left=$((deadline - $(date +%%s)))
    [ "$left" -ge 1 ] || left=1
    said=$(timeout "$left" "$@" /dev/fd/3 < /dev/null 2>&1) && return
    status=$?
    [ "$status" -ne 124 ] || said="no answer within 50 s"
    said=$(printf '%%s' "$said" | tr -d '"' | tr -c '[:print:]\n' ' ' | grep -v '^ *$' | tail -n 1 | cut -c 1-160)
    rm -f "$healthy"
    case $(state) in
    '' | *DRAIN* | *DOWN*) ;; # slurmctld does not answer, or the node takes no jobs already: what was said first stays
    *) scontrol update nodename="$SLURMD_NODENAME" state=drain reason="health: $name: ${said:-ended with $status}" ;;
    esac
    return 1
}

# state prints the node's state, and its reason behind a blank.
state() {
    scontrol --oneliner show node "$SLURMD_NODENAME" | sed -n -e 's/.* State=\([^ ]*\).* Reason=\(.*\)/\1 \2/p' -e t -e 's/.* State=\([^ ]*\).*/\1/p'
}

case ${SLURM_SCRIPT_CONTEXT:-} in
prolog_slurmd)
    %[1]s/prolog || exit
%[2]s    exit 0
    ;;
epilog_slurmd)
    [ ! -x %[1]s/epilog ] || %[1]s/epilog || exit
%[3]s    exit 0
    ;;
esac

: "${SLURMD_NODENAME:=$(hostname)}"
healthy=/run/slurm/healthy # says that no drain of ours stands, so that healthy nodes ask slurmctld nothing
deadline=$(($(date +%%s) + 50))
%[4]s
[ ! -e "$healthy" ] || exit 0
# All is well again: a drain of ours ends, anybody else's stays.
now=$(state)
case $now in
'') exit 0 ;;
*DRAIN*' health: '*) scontrol update nodename="$SLURMD_NODENAME" state=resume || exit 0 ;;
esac
: > "$healthy"
`
