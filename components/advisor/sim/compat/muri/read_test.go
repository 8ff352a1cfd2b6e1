package muri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What no simulation could end on is refused where it stands.
func TestReadTraceRefuses(t *testing.T) {
	const head = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,duration\n"
	path := filepath.Join(t.TempDir(), "t.csv")
	for line, want := range map[string]string{
		"1,0,0,10,bert,5,50":     `t.csv:2: num_gpu: "0" is not a whole number`,
		"1,1,NaN,10,bert,5,50":   `t.csv:2: submit_time: "NaN" is out of range`,
		"1,1,-1,10,bert,5,50":    "t.csv:2: job 1: submit_time is -1",
		"1,1,0,0,bert,5,50":      "t.csv:2: job 1: iterations is 0",
		"1,1,0,10,bert,-5,50":    "t.csv:2: job 1: iteration_time is -5",
		"1,1,0,10,bert":          "t.csv:2: 5 fields where the header has 7; the line is truncated; mend or remove the line",
		"":                       "the trace has no jobs",
		"x,1,0,10,bert,5,50":     `t.csv:2: job_id: "x" is not a number`,
		"1,1,0,1e300,bert,5,50":  "t.csv:2: iterations: ",
		"1,1e9,0,10,bert,5,50\n": "t.csv:2: num_gpu: ",
	} {
		if err := os.WriteFile(path, []byte(head+line), 0o600); err != nil {
			t.Fatal(err)
		}
		if jobs, err := ReadTrace(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", line, jobs, err, want)
		}
	}
}
