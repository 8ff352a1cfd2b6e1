package scaler

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// Metrics is what the autoscaler counts.
type Metrics struct {
	Round        prometheus.Histogram
	Interval     prometheus.Gauge
	Errors       prometheus.Counter
	SlurmAnswers prometheus.Gauge
	Actions      *prometheus.CounterVec
	Refused      *prometheus.CounterVec
	Nodes        *prometheus.GaugeVec
	Unplaced     *prometheus.GaugeVec
	Floor        *prometheus.GaugeVec
	Overdue      *prometheus.GaugeVec
	Drained      *prometheus.GaugeVec
	Shares       *prometheus.GaugeVec
	IdleCards    *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	metrics := &Metrics{
		Round: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "berth_autoscaler_round_duration_seconds", Help: "Time of one look at Slurm and Kubernetes, actions included.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 14),
		}),
		Interval: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_autoscaler_interval_seconds", Help: "Time to the next round where nothing pokes.",
		}),
		Errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_autoscaler_errors_total", Help: "Rounds that failed, wholly or in part.",
		}),
		SlurmAnswers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_autoscaler_slurm_answers", Help: "1 if slurmctld's last answer was a fresh list of nodes, else 0.",
		}),
		Actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_autoscaler_actions_total", Help: "Actions done, by pool and kind.",
		}, []string{"pool", "kind"}),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_autoscaler_pods_refused_total", Help: "Pods that the API server refused, by pool.",
		}, []string{"pool"}),
		Nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_autoscaler_nodes", Help: "Nodes of a pool by what they do: up, busy, idle, starting.",
		}, []string{"pool", "state"}),
		Unplaced: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_autoscaler_pods_unplaced", Help: "Pods that Slurm wants and Kubernetes cannot run yet, by pool.",
		}, []string{"pool"}),
		Floor: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_autoscaler_floor_nodes", Help: "Nodes of a pool that stay up, work or none.",
		}, []string{"pool"}),
		Overdue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_autoscaler_nodes_overdue", Help: "Nodes of a pool that are longer on their way up or down than anything should take.",
		}, []string{"pool"}),
		Drained: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_autoscaler_nodes_drained", Help: "Nodes of a pool that take no jobs, by who said so: berth, guard (a change that waits), mps (the card), slurm, other (a person, a health check).",
		}, []string{"pool", "by"}),
		Shares: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_autoscaler_mps_shares", Help: "Standard shares of the cards of nodes that are up: used, free.",
		}, []string{"pool", "state"}),
		IdleCards: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_autoscaler_gpu_idle_seconds_total", Help: "Time that cards of nodes that are up were allocated to no job, summed over cards.",
		}, []string{"pool"}),
	}
	for _, collector := range []prometheus.Collector{
		metrics.Round, metrics.Interval, metrics.Errors, metrics.SlurmAnswers, metrics.Actions, metrics.Refused, metrics.Nodes, metrics.Unplaced,
		metrics.Floor, metrics.Overdue, metrics.Drained, metrics.Shares, metrics.IdleCards,
	} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return metrics, nil
}

func (m *Metrics) nodes(pool string, counts v1alpha1.NodeCounts, unplaced int, floor int32) {
	m.Nodes.WithLabelValues(pool, "up").Set(float64(counts.Up))
	m.Nodes.WithLabelValues(pool, "busy").Set(float64(counts.Busy))
	m.Nodes.WithLabelValues(pool, "idle").Set(float64(counts.Idle))
	m.Nodes.WithLabelValues(pool, "starting").Set(float64(counts.PoweringUp))
	m.Unplaced.WithLabelValues(pool).Set(float64(unplaced))
	m.Floor.WithLabelValues(pool).Set(float64(floor))
}
