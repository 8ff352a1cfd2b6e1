package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A health check of the site fails on a worker with a job: the node is drained with what the check said, berth status shows it with the
// way back, the job goes on, and when the check succeeds again the drain ends by itself. A drain by hand stays.
func TestHealthCheck(t *testing.T) {
	r := begin(t, 15*time.Minute)
	const sick = outputDir + "/e2e-sick"
	remove := func() {
		if out, err := r.inLogin("rm -f " + sick); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	defer func() {
		ctx, cancel := aftermath()
		defer cancel()
		r.ctx = ctx
		remove()
	}()
	j := r.runningJob(student, "--partition=cpu --time=30")
	s := r.clone()
	s.declare(`lab: slurm: hooks: {
	interval: "30s"
	healthCheck: fan: """
		#!/bin/sh
		[ ! -e ` + sick + ` ] || { echo looked; echo 'fan 2 stands still'; exit 1; }

		"""
}`)
	s.deliver("Check the fans")
	if out, err := r.inLogin("touch " + sick); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	type away struct{ Nodes, State, Reason, Help string }
	status := func() (found away, text string) {
		out, err := s.command("berth", "status", siteName, "--output", "json")
		var report struct{ Away []away }
		if jsonErr := json.Unmarshal([]byte(out), &report); jsonErr != nil {
			return away{}, fmt.Sprint(out, err)
		}
		for _, a := range report.Away {
			if a.Nodes == j.nodes {
				return a, ""
			}
		}
		return away{}, out
	}
	const reason = "health: fan: fan 2 stands still"
	r.eventually(120*time.Second, "berth status names the sick node", func() (bool, string) {
		found, text := status()
		return found.Reason == reason && strings.HasPrefix(found.State, "drain") && strings.Contains(found.Help, "the drain ends by itself"), fmt.Sprint(found, text)
	})
	if out, err := s.command("berth", "status", siteName); !strings.Contains(out, j.nodes+" drain") || !strings.Contains(out, reason) {
		t.Errorf("berth status prints (%v)\n%s", err, out)
	}
	if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" {
		t.Errorf("%v %v; want it RUNNING on its drained node", now, err)
	}
	if out := r.mustAs(researcher, "sinfo --list-reasons --noheader"); !strings.Contains(out, "health: fan") {
		t.Errorf("sinfo -R shows a user %q", out)
	}
	remove()
	r.eventually(120*time.Second, "the drain has ended", func() (bool, string) {
		found, _ := status()
		return found.Nodes == "", fmt.Sprint(found)
	})
	r.mustController("scontrol update nodename=" + j.nodes + " state=drain reason='by hand'")
	defer func() { _, _ = r.inController("scontrol update nodename=" + j.nodes + " state=resume") }()
	time.Sleep(65 * time.Second) // two health checks
	if found, text := status(); found.Reason != "by hand" || !strings.Contains(found.Help, "scontrol update nodename="+j.nodes+" state=resume") {
		t.Errorf("a drain by hand became %+v\n%s", found, text)
	}
	r.mustController("scontrol update nodename=" + j.nodes + " state=resume")
	r.mustComplete(j)
}
