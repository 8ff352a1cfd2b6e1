package status

import (
	"context"
	"fmt"
	"strings"
)

// Away are nodes that take no jobs because somebody, a failed health check or Slurm itself drained them or set them down.
type Away struct {
	Nodes  string `json:"nodes"`  // a host list
	State  string `json:"state"`  // Slurm's word: draining while jobs run on, drained, down
	Reason string `json:"reason"` // as it was given
	By     string `json:"by"`     // who gave it
	Since  string `json:"since"`  // in the site's time zone, as Slurm writes it
	Help   string `json:"help"`
}

// listReasons asks for all nodes that are down, drained or draining, alike ones in one line. The reason comes last: anything may be
// in it.
var listReasons = []string{"sinfo", "--all", "--list-reasons", "--noheader", "--format=%N|%T|%u|%H|%E"}

// askNodes finds the nodes that take no jobs.
func (r *Report) askNodes(ctx context.Context, ask Ask) error {
	out, err := ask(ctx, "slurmctld", listReasons...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSpace(line), "|", 5)
		if len(fields) != 5 {
			return fmt.Errorf("sinfo printed %q, which is no node with a reason", strings.TrimSpace(line))
		}
		away := Away{Nodes: fields[0], State: strings.TrimRight(fields[1], "*~#!%$@^-+"), By: fields[2], Since: fields[3], Reason: oneLine(fields[4])}
		away.Help = helpFor(away)
		r.Away = append(r.Away, away)
	}
	return nil
}

// helpFor says how the nodes come back. Who drained them begins the reason (health checks, the guard, the autoscaler and berth), or it is
// Slurm's own, which the autoscaler brings round.
func helpFor(a Away) string {
	resume := fmt.Sprintf("scontrol update nodename=%s state=resume", a.Nodes)
	for _, known := range []struct{ prefix, help string }{
		{"health: ", "mend the node; the drain ends by itself when all health checks succeed"},
		{"mps: ", "nothing: the drain ends when the last job with a share of the card is gone and its MPS daemon with it; until then the worker's log says more"},
		{"guard: ", "nothing: the guard ends it when the change of configuration is applied or taken back"},
		{"berth: host ", "berth undrain HOST when the host may have work again"},
		{"berth: ", "nothing: it ends when the change behind it does"},
		{"Not responding", "nothing: the autoscaler brings the node round"},
		{"ResumeTimeout reached", "nothing: the autoscaler brings the node round; the pool's conditions say why its worker did not come up"},
		{"Prolog error", "look for the prolog's message in the worker's log; then " + resume},
		{"Epilog error", "look for the epilog's message in the worker's log; then " + resume},
	} {
		if strings.HasPrefix(a.Reason, known.prefix) {
			return known.help
		}
	}
	return "when it is well: " + resume
}
