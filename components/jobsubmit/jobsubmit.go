// Package jobsubmit holds job_submit.lua, which slurmctld runs for every job that is submitted: it asks the advisor within a
// deadline of milliseconds, applies the site's own rules, and lets no error of either refuse or delay a job. The package
// writes the script for a site; it talks to nobody itself.
package jobsubmit

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/yuin/gopher-lua/parse"
)

//go:embed job_submit.lua
var body string

// LongestAnswer is what the script reads of an answer at most, headers included, in bytes.
const LongestAnswer = 4096

// FileName is what slurmctld calls the script, beside slurm.conf.
const FileName = "job_submit.lua"

// Modes of the advisor.
const (
	Off    = "off"
	Shadow = "shadow"
	Live   = "live"
)

// Settings are what a site decides about the script.
type Settings struct {
	// Mode: off asks nobody, shadow asks and changes nothing, live lets the answer boost the job.
	Mode string
	// Deadline bounds all that a submission waits for the advisor; slurmctld holds its locks meanwhile.
	Deadline time.Duration
	// MaxBoost bounds the site factor, in points of priority.
	MaxBoost int
	// Socket is the sidecar's unix socket; "": none.
	Socket string
	// Service is the file with "ADDRESS PORT TOKEN\n" of the service that is asked second; "": none.
	Service string
	// Rerank marks jobs whose priority a person has set, for the ranker of waiting jobs.
	Rerank bool
	// SlurmUID is Slurm's own user's number, which an administrator in the controller pod has.
	SlurmUID int
	// Failures in a row after which an endpoint is left alone, for Rest, and then for twice as long after each failed probe up to
	// LongestRest. 0: 3, 10 s, 2 min.
	Failures    int
	Rest        time.Duration
	LongestRest time.Duration
	// RequireTimeLimit and RequireAccount refuse jobs without one.
	RequireTimeLimit, RequireAccount bool
	// NoLoginShell takes the wish for the environment of a login shell (sbatch --get-user-env, --export=NONE, every scrontab job) from
	// jobs: slurmd 26.05 starts that shell in namespaces of its own, and ends where it may not make any.
	NoLoginShell bool
	// Before, After and Modify are the site's own Lua: the body of a function of job_desc, part_list and submit_uid (Modify:
	// job_desc, job_rec, part_list and modify_uid) that may return a Slurm error code to refuse the job.
	Before, After, Modify string

	// expose makes the script's functions a global, for tests.
	expose bool
}

// Needed says whether the site needs a script at all.
func (s Settings) Needed() bool {
	return (s.Mode != "" && s.Mode != Off) || s.RequireTimeLimit || s.RequireAccount || s.NoLoginShell || s.Before != "" || s.After != "" || s.Modify != ""
}

// Script writes job_submit.lua. It fails where one of the site's own rules is not Lua, with the rule's name and line.
func Script(s Settings) (string, error) {
	if s.Mode == "" {
		s.Mode = Off
	}
	if s.Failures == 0 {
		s.Failures = 3
	}
	if s.Rest == 0 {
		s.Rest = 10 * time.Second
	}
	if s.LongestRest == 0 {
		s.LongestRest = 2 * time.Minute
	}
	var b strings.Builder
	b.WriteString("-- Made by berth from the site. Changes belong in the site: advisor, and slurm.jobSubmit for rules of its own.\n")
	fmt.Fprintf(&b, `local settings = {
   mode = %s, deadline = %g, max_boost = %d, rerank = %t, slurm_uid = %d,
   socket = %s, service = %s,
   failures = %d, rest = %g, longest_rest = %g,
   require = { time_limit = %t, account = %t },
`, quote(s.Mode), s.Deadline.Seconds(), s.MaxBoost, s.Rerank, s.SlurmUID, quote(s.Socket), quote(s.Service),
		s.Failures, s.Rest.Seconds(), s.LongestRest.Seconds(), s.RequireTimeLimit, s.RequireAccount)
	if s.NoLoginShell {
		b.WriteString("   no_login_shell = true,\n")
	}
	if s.expose {
		b.WriteString("   test = true,\n")
	}
	b.WriteString("}\nlocal site = {}\n")
	for _, rule := range []struct{ name, arguments, code string }{
		{"before", "job_desc, part_list, submit_uid", s.Before},
		{"after", "job_desc, part_list, submit_uid", s.After},
		{"modify", "job_desc, job_rec, part_list, modify_uid", s.Modify},
	} {
		if rule.code == "" {
			continue
		}
		if err := check(rule.name, rule.code); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "function site.%s(%s)\n%s\nend\n", rule.name, rule.arguments, strings.TrimRight(rule.code, "\n"))
	}
	b.WriteString("\n")
	b.WriteString(body)
	return b.String(), nil
}

// check parses a rule by itself, so that an "end" too many in it can't close what is around it.
func check(name, code string) error {
	if _, err := parse.Parse(strings.NewReader(code), name); err != nil {
		return fmt.Errorf("%s is not Lua: %w", name, err)
	}
	return nil
}

// quote writes a Lua string: printable ASCII as it is, everything else as decimal escapes.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= 0x20 && c < 0x7f:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03d`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
