package slurm

import "testing"

// slurmctld's own words, in 24.11 behind its name and in 26.05 behind the time.
func TestLeader(t *testing.T) {
	for line, want := range map[string]string{
		"slurmctld: Running as primary controller":                                                 "Running as primary controller",
		"[2026-12-03T06:53:56.822] Running as primary controller":                                  "Running as primary controller",
		"slurmctld: fatal: Unable to process configuration file":                                   "fatal: Unable to process configuration file",
		"slurmctld: error: _parse_next_key: Parsing error at unrecognized key: Nonsense":           "error: _parse_next_key: Parsing error at unrecognized key: Nonsense",
		"error: a line that [2026-12-03T06:53:56.822] and slurmctld: stand in stays as it is here": "error: a line that [2026-12-03T06:53:56.822] and slurmctld: stand in stays as it is here",
	} {
		if got := leader.ReplaceAllString(line, ""); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}
