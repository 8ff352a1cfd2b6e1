package slurmconf

import (
	"fmt"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// MPSPerCard is the count of gres/mps that stands for one whole card: one unit is one percent.
const MPSPerCard = 100

// GRES is one generic resource of a node: gpu:rtx4070:1, mps:rtx4070:100. It is the one place where such strings are made.
type GRES struct {
	Name  string // gpu, mps or shard
	Type  string // the card's model; empty: untyped
	Count int
}

// String writes slurm.conf's name[:type]:count.
func (g GRES) String() string {
	if g.Type == "" {
		return fmt.Sprintf("%s:%d", g.Name, g.Count)
	}
	return fmt.Sprintf("%s:%s:%d", g.Name, g.Type, g.Count)
}

// TRES is the name under which accounting knows the resource: gres/gpu:rtx4070.
func (g GRES) TRES() string {
	if g.Type == "" {
		return "gres/" + g.Name
	}
	return "gres/" + g.Name + ":" + g.Type
}

// poolGRES lists what one worker of the pool offers to Slurm: its cards, and the way they are shared.
func poolGRES(pool site.Pool) []GRES {
	if pool.GPUs == 0 {
		return nil
	}
	gres := []GRES{{Name: "gpu", Type: pool.Model, Count: pool.GPUs}}
	switch {
	case pool.Sharing.MPS != nil:
		gres = append(gres, GRES{Name: "mps", Type: pool.Model, Count: MPSPerCard * pool.GPUs})
	case pool.Sharing.Shard != nil:
		gres = append(gres, GRES{Name: "shard", Type: pool.Model, Count: pool.Sharing.Shard.Count * pool.GPUs})
	}
	return gres
}

// cardNames is where a worker has its cards under the numbers 0 and up, whatever they are on its host (start-slurmd, mps cards).
const cardNames = "/run/berth/cards/nvidia"

// gresLine is one line of gres.conf.
type gresLine struct {
	nodes  string
	name   string
	model  string
	count  int // 0: as many as there are files
	device int
}

func (l gresLine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "NodeName=%s Name=%s", l.nodes, l.name)
	if l.model != "" {
		fmt.Fprintf(&b, " Type=%s", l.model)
	}
	if l.count > 0 {
		fmt.Fprintf(&b, " Count=%d", l.count)
	}
	fmt.Fprintf(&b, " File=%s%d", cardNames, l.device)
	return b.String()
}

func poolGRESLines(pool site.Pool, nodes string) []gresLine {
	var lines []gresLine
	for device := range pool.GPUs {
		lines = append(lines, gresLine{nodes: nodes, name: "gpu", model: pool.Model, device: device})
	}
	for device := range pool.GPUs {
		switch {
		case pool.Sharing.MPS != nil:
			lines = append(lines, gresLine{nodes: nodes, name: "mps", model: pool.Model, count: MPSPerCard, device: device})
		case pool.Sharing.Shard != nil:
			lines = append(lines, gresLine{nodes: nodes, name: "shard", model: pool.Model, count: pool.Sharing.Shard.Count, device: device})
		}
	}
	return lines
}
