// Package policy holds the orders in which waiting jobs are considered. An order sees a Request, which has the user's
// estimate and never the true run time.
package policy

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Order ranks waiting jobs: the smallest key goes first, ties by time of submission and then by order of arrival.
type Order interface {
	// Name is the order's name on the command line.
	Name() string
	// Key scores a waiting job at a time.
	Key(r *workload.Request, now workload.Time) float64
	// Static says that Key does not depend on now, so that a queue may be kept sorted.
	Static() bool
}

type order struct {
	name   string
	static bool
	key    func(r *workload.Request, now workload.Time) float64
}

func (o order) Name() string                                       { return o.name }
func (o order) Static() bool                                       { return o.static }
func (o order) Key(r *workload.Request, now workload.Time) float64 { return o.key(r, now) }

func seconds(t workload.Time) float64 { return float64(t) / float64(workload.Second) }

// FCFS is first come, first served.
var FCFS Order = order{"fcfs", true, func(r *workload.Request, _ workload.Time) float64 { return float64(r.Submit) }}

// SJF is shortest (estimated) job first.
var SJF Order = order{"sjf", true, func(r *workload.Request, _ workload.Time) float64 { return float64(r.Limit) }}

// LJF is longest job first, a worst case for tests.
var LJF Order = order{"ljf", true, func(r *workload.Request, _ workload.Time) float64 { return -float64(r.Limit) }}

// SAF is smallest area first: estimated time times processors (Carastan-Santos et al. 2019). On a cluster of cards the area is
// in cards.
var SAF Order = order{"saf", true, func(r *workload.Request, _ workload.Time) float64 { return float64(r.Limit) * Width(r) }}

// F1 is the first of the learned non-linear functions of Carastan-Santos and de Camargo (SC'17):
// log10(r)·n + 870·log10(s), r and s (the absolute submit time of the log) in seconds. A submit time below one second counts
// as one second, because the logarithm has to exist.
var F1 Order = order{"f1", true, func(r *workload.Request, _ workload.Time) float64 {
	return float64(math.Log10(seconds(r.Limit))*Width(r)) + float64(870*math.Log10(max(seconds(r.Submit), 1))) // not fused
}}

// WFP3 favours long waits in units of the estimate, cubed, times width (Tang et al. 2009): −(w/r)³·n.
var WFP3 Order = order{"wfp3", false, func(r *workload.Request, now workload.Time) float64 {
	return WFP3Score(seconds(now-r.Submit), seconds(r.Limit), Width(r))
}}

// UNICEP favours long waits of small jobs (Tang et al. 2009): −w/(log2(n)·r); 1e-15 keeps n = 1 finite.
var UNICEP Order = order{"unicep", false, func(r *workload.Request, now workload.Time) float64 {
	return UNICEPScore(seconds(now-r.Submit), seconds(r.Limit), Width(r))
}}

// WFP3Score is WFP3's formula for a wait and an estimate in seconds.
func WFP3Score(wait, estimate, width float64) float64 {
	x := wait / estimate
	return -(math.Pow(x, 3) * width)
}

// UNICEPScore is UNICEP's formula for a wait and an estimate in seconds.
func UNICEPScore(wait, estimate, width float64) float64 {
	return -(wait + 1e-15) / (math.Log2(width+1e-15) * estimate)
}

// Width is how much of the machine a job wants: cards if it asks for cards, else processors; at least 1.
func Width(r *workload.Request) float64 {
	switch {
	case r.GPUs > 0 && r.GPUMilli > 0:
		return float64(r.GPUs) * float64(r.GPUMilli) / 1000
	case r.GPUs > 0:
		return float64(r.GPUs)
	case r.Procs > 0:
		return float64(r.Procs)
	}
	return 1
}

// Orders lists the orders by name.
func Orders() []Order { return []Order{FCFS, SJF, LJF, SAF, F1, WFP3, UNICEP} }

// OrderByName finds an order; the error lists those there are.
func OrderByName(name string) (Order, error) {
	var names []string
	for _, o := range Orders() {
		if o.Name() == name {
			return o, nil
		}
		names = append(names, o.Name())
	}
	sort.Strings(names)
	return nil, fmt.Errorf("no order is called %q; use one of %s", name, strings.Join(names, ", "))
}
