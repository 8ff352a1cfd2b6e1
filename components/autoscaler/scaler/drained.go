package scaler

import (
	"strings"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// drainers are those who take nodes out of service, by how their reasons begin. The last is everybody else.
var drainers = []struct{ name, begins string }{
	{"berth", decision.ReasonPrefix}, {"guard", "guard:"}, {"mps", "mps:"},
	{"slurm", "Not responding"}, {"slurm", "ResumeTimeout reached"}, {"slurm", "Duplicate jobid"}, {"slurm", "Kill task failed"},
	{"slurm", "Prolog error"}, {"slurm", "Epilog error"},
	{"other", ""},
}

// drained counts the pool's nodes that take no jobs, by who said so.
func (l *Loop) drained(view *view, pool *poolView) {
	counts := map[string]float64{}
	for _, name := range pool.names() {
		node := view.nodes[name]
		if node == nil || !node.State.Has(slurmrest.Drain|slurmrest.Down) {
			continue
		}
		for _, drainer := range drainers {
			if strings.HasPrefix(node.Reason, drainer.begins) {
				counts[drainer.name]++
				break
			}
		}
	}
	for _, drainer := range drainers {
		l.Metrics.Drained.WithLabelValues(pool.object.Name, drainer.name).Set(counts[drainer.name])
	}
}
