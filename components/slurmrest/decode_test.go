package slurmrest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/slurmrest"
)

// recorded returns an answer of a real slurmrestd 24.11.5.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestNodesAsSlurmSaysThem(t *testing.T) {
	const (
		cpu0 = "slurm-worker-cpu-0"
		cpu1 = "slurm-worker-cpu-1"
		cpu2 = "slurm-worker-cpu-2"
		gpu0 = "slurm-worker-gpu-0"
	)
	for _, test := range []struct {
		file, node, state, reason string
	}{
		{"nodes-busy", cpu0, "MIXED+CLOUD", ""},
		{"nodes-busy", gpu0, "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", ""},
		{"nodes-busy", cpu2, "IDLE+CLOUD+POWERED_DOWN", ""},
		{"nodes-power-down-asap", cpu0, "IDLE+CLOUD+DRAIN+POWER_DOWN", "berth: template"},
		{"nodes-powering-down", cpu1, "IDLE+CLOUD+POWERING_DOWN", "berth: pod ended"},
		// A power-up that a person (or a floor) asked for: POWERED_DOWN stands beside POWERING_UP.
		{"nodes-manual-power-up", cpu2, "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN+POWERING_UP+POWER_UP", ""},
		{"nodes-resume-timeout", gpu0, "DOWN+CLOUD+POWERED_DOWN", "ResumeTimeout reached"},
		{"nodes-drained", cpu2, "IDLE+CLOUD+DRAIN+POWER_UP", "fan broken"},
		{"nodes-down-by-administrator", cpu1, "DOWN+CLOUD", "smoke"},
	} {
		list, err := slurmrest.DecodeNodes(200, recorded(t, test.file))
		if err != nil {
			t.Fatalf("%s: %v", test.file, err)
		}
		if len(list.Nodes) != 4 || list.AsOf.IsZero() || list.Cluster != "berth" {
			t.Errorf("%s: %d nodes of cluster %q as of %v, want 4 of berth", test.file, len(list.Nodes), list.Cluster, list.AsOf)
		}
		for _, node := range list.Nodes {
			if node.Name != test.node {
				continue
			}
			// The order of the words is slurmrestd's own, so compare as sets.
			if node.State.String() != test.state || node.Reason != test.reason {
				t.Errorf("%s: %s is %s %q, want %s %q", test.file, node.Name, node.State, node.Reason, test.state, test.reason)
			}
		}
	}
}

// Whatever is not a whole, fresh list of nodes is an error: a scaler that takes such an answer for "no nodes" deletes
// everybody's pods.
func TestBadAnswersAreErrors(t *testing.T) {
	good := string(recorded(t, "nodes-busy"))
	replace := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the recorded answer does not hold %s", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"an error inside HTTP 200", 200, string(recorded(t, "node-missing")), "Failure to query node nonesuch"},
		{"no nodes", 200, replaceNodes(good, "[]"), "no nodes where slurm.conf has some"},
		{"null for the nodes", 200, replaceNodes(good, "null"), "no nodes where slurm.conf has some"},
		{"truncated", 200, good[:len(good)/2], "unexpected end of JSON input"},
		{"another API version", 200, replace("data_parser/v0.0.42", "data_parser/v0.0.39"), "this program speaks v0.0.42"},
		{"HTML from a proxy", 502, "<html>bad gateway</html>", "HTTP 502"},
		{"HTML with status 200", 200, "<html>welcome</html>", "not what the API promises"},
		{"another JSON service", 200, `{"nodes":[{"name":"a","state":["IDLE"]}]}`, "is this slurmrestd?"},
		{"an empty body", 200, "", "unexpected end of JSON input"},
		{"refused token", 401, "Authentication failure", "HTTP 401): Authentication failure"},
		{"a node without a name", 200, replace(`"name": "slurm-worker-cpu-0"`, `"name": null`), "it has no name"},
		{"a node twice", 200, replace(`"name": "slurm-worker-cpu-1"`, `"name": "slurm-worker-cpu-0"`), "in the list twice"},
		{"no state", 200, replaceState(good, "null"), "has no state"},
		{"two base states", 200, replaceState(good, `["IDLE","DOWN"]`), "has 2 base states"},
		{"flags only", 200, replaceState(good, `["CLOUD"]`), "has 0 base states"},
		{"a number for the state", 200, replaceState(good, "7"), "not what the API promises"},
		{"no time", 200, replace(`"last_update"`, `"first_update"`), "does not say when"},
	} {
		t.Run(test.name, func(t *testing.T) {
			list, err := slurmrest.DecodeNodes(test.status, []byte(test.body))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if list != nil {
				t.Error("a list beside the error")
			}
		})
	}
}

// A word of a newer Slurm leaves the node readable, and marks it as not to be touched.
func TestUnknownStateWords(t *testing.T) {
	list, err := slurmrest.DecodeNodes(200, []byte(replaceState(string(recorded(t, "nodes-busy")), `["IDLE","HIBERNATED"]`)))
	if err != nil {
		t.Fatal(err)
	}
	marked := 0
	for _, node := range list.Nodes {
		if len(node.UnknownWords) == 1 && node.UnknownWords[0] == "HIBERNATED" {
			marked++
		}
	}
	if marked != 1 {
		t.Errorf("%d nodes marked, want 1", marked)
	}
}

func TestErrorsKeepSlurmsNumbers(t *testing.T) {
	_, err := slurmrest.DecodeJobStates(404, recorded(t, "job-missing"))
	var apiError *slurmrest.APIError
	if !errors.As(err, &apiError) || len(apiError.Numbers) != 1 || apiError.Numbers[0] != 2017 || apiError.Status != 404 {
		t.Errorf("got %v, want Slurm's error 2017 with HTTP 404", err)
	}
}

func TestOtherAnswers(t *testing.T) {
	jobs, err := slurmrest.DecodeJobStates(200, recorded(t, "jobs-state"))
	if err != nil || len(jobs) != 2 || jobs[1].ID != "2" || strings.Join(jobs[1].States, "+") != "RUNNING+CONFIGURING+POWER_UP_NODE" {
		t.Errorf("jobs %v, error %v", jobs, err)
	}
	if jobs[0].OnNodes() != strings.Contains(strings.Join(jobs[0].States, "+"), "RUNNING") || !jobs[1].OnNodes() {
		t.Error("which jobs have nodes:", jobs)
	}
	job, err := slurmrest.DecodeJob(200, recorded(t, "job"))
	if err != nil || strings.Join(job.Nodes, " ") == "" || job.User == "" || job.Name == "" {
		t.Errorf("job %+v, error %v", job, err)
	}
	if job, err := slurmrest.DecodeJob(404, recorded(t, "job-missing")); err == nil {
		t.Errorf("a job that is not there: %+v", job)
	}
	if err := slurmrest.DecodePing(200, recorded(t, "ping")); err != nil {
		t.Error(err)
	}
	if err := slurmrest.DecodePing(200, []byte(strings.Replace(string(recorded(t, "ping")), `"responding": true`, `"responding": false`, 1))); err == nil {
		t.Error("a ping that nobody answered counts as an answer")
	}
	statistics, err := slurmrest.DecodeStatistics(200, recorded(t, "diag"))
	if err != nil || statistics.JobsRunning != 1 {
		t.Errorf("statistics %+v, error %v, want one running job (the other one configures)", statistics, err)
	}
}

// What bounds a job's place is told, whatever of it there is.
func TestJobRecordsTellWhatBoundsAJob(t *testing.T) {
	answer := string(recorded(t, "job"))
	for from, want := range map[string]string{
		``:                     "",
		`"excluded_nodes": ""`: "it excludes nodes",
		`"features": ""`:       "it asks for features",
		`"resv_name": ""`:      "it is in a reservation",
		`"dependency": ""`:     "it depends on other jobs",
	} {
		changed := answer
		if from != "" {
			changed = strings.Replace(answer, "\n      "+from, "\n      "+from[:len(from)-1]+`x"`, 1)
		}
		jobs, err := slurmrest.DecodeJobRecords(200, []byte(changed))
		if err != nil || len(jobs) != 1 || jobs[0].Bound != want || jobs[0].Reason != "None" || jobs[0].RequiredNodes != "" {
			t.Errorf("%s: %+v %v", from, jobs, err)
		}
	}
	changed := strings.Replace(answer, `"required_nodes": ""`, `"required_nodes": "slurm-worker-cpu-0"`, 1)
	if jobs, err := slurmrest.DecodeJobRecords(200, []byte(changed)); err != nil || jobs[0].RequiredNodes != "slurm-worker-cpu-0" {
		t.Errorf("%+v %v", jobs, err)
	}
}

// replaceNodes puts another value for the list of nodes.
func replaceNodes(answer, value string) string {
	start := strings.Index(answer, `"nodes": [`) + len(`"nodes": `)
	end := strings.LastIndex(answer, `"last_update"`)
	return answer[:start] + value + ",\n" + answer[end:]
}

// replaceState puts another value for the first node's state.
func replaceState(answer, value string) string {
	start := strings.Index(answer, `"state": [`) + len(`"state": `)
	return answer[:start] + value + answer[start+strings.Index(answer[start:], "]")+1:]
}

func FuzzDecodeNodes(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no recorded answers", err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(200, body)
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		list, err := slurmrest.DecodeNodes(status, body)
		if (err == nil) == (list == nil) {
			t.Fatalf("list %v and error %v", list, err)
		}
		if err == nil {
			if status != 200 || len(list.Nodes) == 0 || list.AsOf.IsZero() {
				t.Fatalf("accepted an answer that says nothing: HTTP %d, %+v", status, list)
			}
			for _, node := range list.Nodes {
				if node.Name == "" || (node.State == 0 && len(node.UnknownWords) == 0) {
					t.Fatalf("accepted the node %+v", node)
				}
			}
		}
		if states, err := slurmrest.DecodeJobStates(status, body); err == nil && status != 200 {
			t.Fatalf("accepted jobs %v of HTTP %d", states, status)
		}
		if statistics, err := slurmrest.DecodeStatistics(status, body); (err == nil) == (statistics == nil) {
			t.Fatalf("statistics %v and error %v", statistics, err)
		}
		if job, err := slurmrest.DecodeJob(status, body); (err == nil) == (job == nil) || err == nil && status != 200 {
			t.Fatalf("HTTP %d: job %v and error %v", status, job, err)
		}
		_ = slurmrest.DecodePing(status, body)
	})
}

// What a job asks for is known also where Slurm's summary has no cards in it, or is empty.
func TestJobRecordsTellWhatAJobAsksFor(t *testing.T) {
	for fields, want := range map[string]string{
		`"tres_req_str":"cpu=4,mem=8G,node=1,gres/gpu:rtx4070=1","tres_per_node":"gres/gpu:rtx4070:1"`:                                                            "cpu=4,mem=8G,node=1,gres/gpu:rtx4070=1",
		`"tres_req_str":"cpu=4,mem=8G,node=2","node_count":{"set":true,"number":2},"tres_per_node":"gres/gpu:a100:4,license/x:1"`:                                 "cpu=4,mem=8G,node=2,gres/gpu:a100=8",
		`"tres_req_str":"cpu=1,node=1","tres_per_job":"gres:mps:25"`:                                                                                              "cpu=1,node=1,gres/mps=25",
		`"tres_req_str":"","cpus":{"set":true,"number":6},"memory_per_cpu":{"set":true,"number":1024},"tres_per_task":"gres/gpu","tasks":{"set":true,"number":3}`: "cpu=6,mem=6144M,node=1,gres/gpu=3",
		`"cpus":{"set":true,"number":2},"node_count":{"set":true,"number":2},"memory_per_node":{"set":true,"number":512}`:                                         "cpu=2,mem=1024M,node=2",
		`"tres_per_node":"gres/,gres:,=,gpu:2"`:                       "",
		`"memory_per_node":{"set":true,"number":9223372036854775807}`: "",
	} {
		jobs, err := slurmrest.DecodeJobRecords(200, []byte(`{"jobs":[{"job_id":7,"job_state":["PENDING"],`+fields+`}],"errors":[],"meta":{"plugin":{"data_parser":"data_parser/v0.0.42"}}}`))
		if err != nil || len(jobs) != 1 || jobs[0].TRES != want {
			t.Errorf("%s: %v %+v, want %q", fields, err, jobs, want)
		}
	}
}
