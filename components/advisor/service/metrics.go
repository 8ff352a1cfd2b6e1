package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the service's, in a registry of its own. Names that begin with rl_scheduler_ are those that dashboards of earlier
// advisors ask for.
type metrics struct {
	registry  *prometheus.Registry
	abstained map[Reason]prometheus.Counter
	advised   map[Mode]prometheus.Counter
	seconds   prometheus.Histogram
	refused   *prometheus.CounterVec
	demotions prometheus.Counter
	requests  *prometheus.CounterVec

	rerankOrder   prometheus.Gauge
	rerankWritten prometheus.Counter
	placements    *prometheus.CounterVec
}

func newMetrics(s *Service) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), abstained: map[Reason]prometheus.Counter{}, advised: map[Mode]prometheus.Counter{}}
	abstained := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "advisor_abstentions_total", Help: "Times that no advice was given, by reason.",
	}, []string{"reason"})
	for _, reason := range Reasons {
		m.abstained[reason] = abstained.WithLabelValues(string(reason))
	}
	advised := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "advisor_decisions_total", Help: "Times that advice was given, by mode.",
	}, []string{"mode"})
	for _, mode := range []Mode{Shadow, Live} {
		m.advised[mode] = advised.WithLabelValues(string(mode))
	}
	m.seconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "advisor_decision_seconds", Help: "Time from a request's arrival to its answer.",
		Buckets: []float64{25e-6, 50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 100e-3},
	})
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "advisor_refusals_total", Help: "Settings and checkpoints that were refused.",
	}, []string{"what"})
	m.demotions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "advisor_demotions_total", Help: "Times that live demoted itself to shadow.",
	})
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "advisor_requests_refused_total", Help: "HTTP requests that were refused, by status.",
	}, []string{"status"})
	m.rerankOrder = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "advisor_rerank_changes", Help: "Waiting jobs whose place the last ranking would change.",
	})
	m.rerankWritten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "advisor_rerank_updates_total", Help: "Site factors of waiting jobs that were written.",
	})
	m.placements = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "advisor_placements_total", Help: "Held jobs that were placed, would have been (shadow), went back to Slurm's own rules (returned), or that slurmctld refused to change.",
	}, []string{"outcome"})
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	bit := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	m.registry.MustRegister(
		abstained, advised, m.seconds, m.refused, m.demotions, m.requests, m.rerankOrder, m.rerankWritten, m.placements,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("advisor_snapshot_age_seconds", "Age of the snapshot; -1: there is none.", func() float64 { return s.Health().AgeSeconds }),
		gauge("advisor_abstention_share", "Share of abstentions in the last ten minutes.", func() float64 {
			share, _ := s.shares.abstained(s.now())
			return share
		}),
		gauge("advisor_abstention_share_limit", "Share of abstentions from which the site wants an alert.", func() float64 {
			return s.current.Load().settings.AbstainAlertShare
		}),
		gauge("advisor_live", "1 if advice is applied.", func() float64 { return bit(s.current.Load().settings.Mode == Live) }),
		gauge("advisor_refusing", "1 if the site's settings or its checkpoint are refused, and those before serve on.", func() float64 {
			return bit(s.unread.Load() || s.current.Load().refused != "")
		}),
		gauge("advisor_demoted", "1 if the site wants live and the advisor has demoted itself.", func() float64 { return bit(s.current.Load().demoted != "") }),
		gauge("rl_scheduler_shadow_mode", "1 if advice is given for the record only.", func() float64 { return bit(s.current.Load().settings.Mode == Shadow) }),
		gauge("rl_scheduler_last_node_index", "Node of the last placement, in the site's order; -1: none yet.", func() float64 { return float64(s.lastNode.Load()) }),
		gauge("rl_scheduler_last_gpu_index", "Card of the last placement; -1: none, or whole cards.", func() float64 { return float64(s.lastCard.Load()) }),
	)
	return m
}

func (m *metrics) decided(mode Mode, reason Reason, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	if reason != "" {
		m.abstained[reason].Inc()
		return
	}
	m.advised[mode].Inc()
}
