// Package metric holds the metrics of ax-server. Units are in the names; labels are
// bounded: no job, batch, user or address is ever one.
package metric

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the server's. Create them once.
type Metrics struct {
	Registry *prometheus.Registry

	Triggers       *prometheus.CounterVec // B23
	Failures       *prometheus.CounterVec // B23
	Lateness       *prometheus.HistogramVec
	Fates          *prometheus.CounterVec
	DispatchTries  *prometheus.CounterVec
	DispatchTime   prometheus.Histogram
	Transitions    *prometheus.CounterVec
	Duplicates     *prometheus.CounterVec
	StaleFences    *prometheus.CounterVec
	Callbacks      *prometheus.CounterVec
	CallbackDenied *prometheus.CounterVec
	Logins         *prometheus.CounterVec
	EgressBlocked  *prometheus.CounterVec
	Requests       *prometheus.HistogramVec
	Drift          prometheus.Gauge
	Quarantined    prometheus.Counter
	Forwarded      *prometheus.CounterVec
	Inbox          *prometheus.CounterVec
}

// New makes the metrics with their own registry.
func New(version, commit string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		Triggers: counter("ax_dispatch_task_trigger_total", "Executions sent to an executor.", "app"),
		Failures: counter("ax_dispatch_task_failure_total", "Batches that ended failed, timed out or rejected.", "app"),
		Lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ax_trigger_lateness_seconds", Help: "Trigger error: from the planned time to the sending of the request.",
			Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60},
		}, []string{"kind"}),
		Fates:         counter("ax_trigger_deadline_total", "Planned firings by what became of them.", "outcome", "reason"),
		DispatchTries: counter("ax_dispatch_attempts_total", "Requests to executors by outcome.", "outcome"),
		DispatchTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ax_dispatch_duration_seconds", Help: "Time of one request to an executor.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		Transitions:    counter("ax_batch_transitions_total", "Batches that ended, by state.", "to"),
		Duplicates:     counter("ax_duplicate_suppressed_total", "Firings or results that were there already.", "source"),
		StaleFences:    counter("ax_stale_fence_total", "Writes or results refused by a fence.", "source"),
		Callbacks:      counter("ax_callback_requests_total", "Requests of executors.", "type"),
		CallbackDenied: counter("ax_callback_rejected_total", "Requests of executors that were refused.", "type", "reason"),
		Logins:         counter("ax_login_attempts_total", "Logins by outcome.", "outcome"),
		EgressBlocked:  counter("ax_egress_blocked_total", "Outbound connections that the policy barred.", "reason"),
		Requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_server_request_duration_seconds", Help: "Time of one API request.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 10),
		}, []string{"route", "method", "code"}),
		Forwarded:   counter("ax_peer_requests_total", "Requests that were sent on to the owner of their bucket.", "outcome"),
		Inbox:       counter("ax_inbox_messages_total", "Messages of executors that were kept for the owner of their bucket, and taken from there.", "kind", "step"),
		Drift:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "ax_clock_drift_seconds", Help: "Database clock minus host clock."}),
		Quarantined: prometheus.NewCounter(prometheus.CounterOpts{Name: "ax_quarantined_total", Help: "Shards that ended because their executors ended while they ran them."}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ax_build_info", Help: "Always 1."}, []string{"version", "commit"})
	info.WithLabelValues(version, commit).Set(1)
	m.Registry.MustRegister(m.Triggers, m.Failures, m.Lateness, m.Fates, m.DispatchTries, m.DispatchTime, m.Transitions, m.Duplicates, m.StaleFences, m.Callbacks, m.CallbackDenied, m.Logins, m.EgressBlocked, m.Requests, m.Drift, m.Quarantined, m.Forwarded, m.Inbox, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Gauge registers a gauge that is read when it is scraped.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// LatenessQuantile estimates a quantile of the trigger error over all kinds since the start: the
// upper bound of the histogram's bucket that holds it, in seconds. ok is false before the first trigger.
func (m *Metrics) LatenessQuantile(q float64) (seconds float64, ok bool) {
	families, err := m.Registry.Gather()
	if err != nil {
		return 0, false
	}
	var total uint64
	counts := map[float64]uint64{}
	var bounds []float64
	for _, f := range families {
		if f.GetName() != "ax_trigger_lateness_seconds" {
			continue
		}
		for _, s := range f.GetMetric() {
			total += s.GetHistogram().GetSampleCount()
			for _, b := range s.GetHistogram().GetBucket() {
				if _, seen := counts[b.GetUpperBound()]; !seen {
					bounds = append(bounds, b.GetUpperBound())
				}
				counts[b.GetUpperBound()] += b.GetCumulativeCount()
			}
		}
	}
	if total == 0 {
		return 0, false
	}
	slices.Sort(bounds)
	for _, b := range bounds {
		if float64(counts[b]) >= q*float64(total) {
			return b, true
		}
	}
	return bounds[len(bounds)-1], true
}
