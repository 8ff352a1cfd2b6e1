// Package service is the advisor as a server: it holds a policy, a snapshot and the site's guardrails, answers POST /decide,
// /act and /snapshot, and counts every reason for which it gives no advice. It never raises its own mode.
package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/placement/custody"
)

// Mode is how much the advisor may do.
type Mode string

// Modes. Off says nothing, shadow gives its advice for the record with a boost of 0, live gives the boost.
const (
	Off    Mode = "off"
	Shadow Mode = "shadow"
	Live   Mode = "live"
)

func (m Mode) known() bool { return m == Off || m == Shadow || m == Live }

// Settings are the site's decisions, as the file has them that the service reads again when it changes. The names of the keys
// shadowMode, valueAbstain and snapshotTtlSeconds are those that deployments of earlier advisors use.
type Settings struct {
	Mode Mode `json:"mode"`
	// ShadowMode true is mode shadow, whatever Mode says.
	ShadowMode bool `json:"shadowMode,omitempty"`
	// Checkpoint is the digest of the policy; "": the built-in one.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Topology is what the site's pools are, <model>:<workers>x<cards of one>, comma, fastest first.
	Topology string `json:"topology"`
	// NodeOrder are prefixes of node names in the site's order.
	NodeOrder []string `json:"nodeOrder,omitempty"`
	MaxBoost  int      `json:"maxBoost"`
	// SnapshotTTLSeconds is the age from which a snapshot is stale.
	SnapshotTTLSeconds int `json:"snapshotTtlSeconds"`
	// ValueAbstain is the value under which the advisor abstains; null: as the checkpoint was calibrated.
	ValueAbstain *float64 `json:"valueAbstain,omitempty"`
	// AbstainAlertShare is the share of abstentions that is an alert.
	AbstainAlertShare float64 `json:"abstainAlertShare,omitempty"`
	// BudgetMilliseconds is the time that a decision may take before it comes too late for slurmctld (0: 10).
	BudgetMilliseconds int `json:"budgetMilliseconds,omitempty"`
	// DecisionsPerSecond bounds advice; above it the advisor abstains (0: 5000).
	DecisionsPerSecond int `json:"decisionsPerSecond,omitempty"`
	// Watch is the line at which live demotes itself to shadow.
	Watch Watch `json:"watch,omitzero"`
	// Rerank is the re-ranking of jobs that wait.
	Rerank Rerank `json:"rerank,omitzero"`
	// Placement is the placement of held jobs.
	Placement Placing `json:"placement,omitzero"`
}

// Placing is how much the placement controller may do, and with which jobs.
type Placing struct {
	Mode Mode `json:"mode"` // "": off
	// Terms: GiveUpSeconds 0 is 900, StartSeconds 0 is 600.
	custody.Terms
}

// Rerank is how much waiting jobs may be re-ranked.
type Rerank struct {
	Mode Mode `json:"mode"` // "": off
	// UpdatesPerMinute bounds the site factors that are written (0: 60).
	UpdatesPerMinute int `json:"updatesPerMinute,omitempty"`
	// LeaseSeconds is how long ranks hold that are not renewed (0: 60).
	LeaseSeconds int `json:"leaseSeconds,omitempty"`
}

// Watch is the rolling look at the tail of the waiting times.
type Watch struct {
	// QOS and Partitions say which jobs are of the latency class; both empty: all jobs.
	QOS        []string `json:"qos,omitempty"`
	Partitions []string `json:"partitions,omitempty"`
	// P95WaitSeconds is the 95th percentile of the wait that must not be crossed; 0: not watched.
	P95WaitSeconds float64 `json:"p95WaitSeconds,omitempty"`
	// TargetWaitSeconds is a job's service level: a longer wait is a violation; ViolationShare is the share that must not be
	// crossed. 0: not watched.
	TargetWaitSeconds float64 `json:"targetWaitSeconds,omitempty"`
	ViolationShare    float64 `json:"violationShare,omitempty"`
	// WindowSeconds is how far back is looked (0: 3600), MinJobs how many started jobs make a judgement (0: 20).
	WindowSeconds float64 `json:"windowSeconds,omitempty"`
	MinJobs       int     `json:"minJobs,omitempty"`
}

// ParseSettings reads a settings file and fills in what it leaves out.
func ParseSettings(data []byte) (Settings, error) {
	var s Settings
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return s, fmt.Errorf("settings: %w", err)
	}
	if s.Mode == "" {
		s.Mode = Shadow
	}
	if s.ShadowMode && s.Mode == Live {
		s.Mode = Shadow
	}
	if s.BudgetMilliseconds == 0 {
		s.BudgetMilliseconds = 10
	}
	if s.DecisionsPerSecond == 0 {
		s.DecisionsPerSecond = 5000
	}
	if s.Watch.WindowSeconds == 0 {
		s.Watch.WindowSeconds = 3600
	}
	if s.Watch.MinJobs == 0 {
		s.Watch.MinJobs = 20
	}
	if s.SnapshotTTLSeconds == 0 {
		s.SnapshotTTLSeconds = 30
	}
	if s.Rerank.Mode == "" {
		s.Rerank.Mode = Off
	}
	if s.Rerank.UpdatesPerMinute == 0 {
		s.Rerank.UpdatesPerMinute = 60
	}
	if s.Rerank.LeaseSeconds == 0 {
		s.Rerank.LeaseSeconds = 60
	}
	if s.Placement.Mode == "" {
		s.Placement.Mode = Off
	}
	if s.Placement.GiveUpSeconds == 0 {
		s.Placement.GiveUpSeconds = 900
	}
	if s.Placement.StartSeconds == 0 {
		s.Placement.StartSeconds = 600
	}
	if s.AbstainAlertShare == 0 {
		s.AbstainAlertShare = 0.5
	}
	switch {
	case !s.Mode.known():
		return s, fmt.Errorf("settings: mode %q is not off, shadow or live", s.Mode)
	case !s.Rerank.Mode.known():
		return s, fmt.Errorf("settings: rerank: mode %q is not off, shadow or live", s.Rerank.Mode)
	case s.Rerank.UpdatesPerMinute < 0 || s.Rerank.LeaseSeconds < 0:
		return s, fmt.Errorf("settings: rerank: a number is negative")
	case !s.Placement.Mode.known():
		return s, fmt.Errorf("settings: placement: mode %q is not off, shadow or live", s.Placement.Mode)
	case s.MaxBoost < 0:
		return s, fmt.Errorf("settings: maxBoost %d is negative", s.MaxBoost)
	case s.SnapshotTTLSeconds < 0 || s.BudgetMilliseconds < 0 || s.DecisionsPerSecond < 0 || s.Watch.MinJobs < 0:
		return s, fmt.Errorf("settings: a number is negative")
	case s.Checkpoint != "" && !digest(s.Checkpoint):
		return s, fmt.Errorf("settings: checkpoint %q is not sha256: and 64 hexadecimal digits", s.Checkpoint)
	}
	if s.Placement.Mode != Off {
		if err := s.Placement.Check(); err != nil {
			return s, fmt.Errorf("settings: placement: %w", err)
		}
	}
	return s, nil
}

func digest(text string) bool {
	hex, ok := strings.CutPrefix(text, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

func (s *Settings) ttl() time.Duration { return time.Duration(s.SnapshotTTLSeconds) * time.Second }
func (s *Settings) budget() time.Duration {
	return time.Duration(s.BudgetMilliseconds) * time.Millisecond
}
