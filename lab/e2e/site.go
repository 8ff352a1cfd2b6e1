package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A site is a test's own clone of the repository that Flux follows: what a lab's administrator has on a laptop.
type site struct {
	r   *run
	dir string
	// found is the commit that the test found, head the one that it pushed last.
	found, head string
}

// siteFile is where a user edits the box's site: lab.cue, from which the box variant is derived.
const siteFile = "clusters/lab.cue"

// clone gives the test its clone, with berth and git ready to use in it.
func (r *run) clone() *site {
	r.Helper()
	if r.site != nil {
		return r.site
	}
	s := &site{r: r, dir: filepath.Join(r.TempDir(), "lab")}
	if out, err := exec.CommandContext(r.ctx, "git", "clone", "--quiet", r.box.GitURL(), s.dir).CombinedOutput(); err != nil {
		r.Fatalf("git clone %s: %v: %s", r.box.GitURL(), err, out)
	}
	s.must("git", "config", "user.name", "e2e")
	s.must("git", "config", "user.email", "e2e@localhost")
	s.found = s.must("git", "rev-parse", "HEAD")
	s.head = s.found
	r.site = s
	return s
}

// command runs a program in the clone. berth and cue are the checkout's own.
func (s *site) command(argv ...string) (string, error) {
	program := argv[0]
	if program == "berth" || program == "cue" {
		program = filepath.Join(s.r.box.Source, "bin", program)
	}
	cmd := exec.CommandContext(s.r.ctx, program, argv[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), append(s.r.box.Env(), "NO_COLOR=1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

func (s *site) must(argv ...string) string {
	s.r.Helper()
	out, err := s.command(argv...)
	if err != nil {
		s.r.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// edit replaces the one occurrence of old with replacement, in the one line of the site's file that begins with where
// (blanks aside).
func (s *site) edit(where, old, replacement string) {
	s.r.Helper()
	path := filepath.Join(s.dir, siteFile)
	text, err := os.ReadFile(path)
	if err != nil {
		s.r.Fatal(err)
	}
	lines, edited := strings.Split(string(text), "\n"), 0
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), where) && strings.Count(line, old) == 1 {
			lines[i] = strings.Replace(line, old, replacement, 1)
			edited++
		}
	}
	if edited != 1 {
		s.r.Fatalf("%s: %d lines begin with %q and hold %q once, want one:\n%s", siteFile, edited, where, old, text)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		s.r.Fatal(err)
	}
}

// declare adds lines to the site's file: CUE unifies them with what is there.
func (s *site) declare(lines string) {
	s.r.Helper()
	if err := s.addLines(lines); err != nil {
		s.r.Fatal(err)
	}
}

func (s *site) addLines(lines string) error {
	f, err := os.OpenFile(filepath.Join(s.dir, siteFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + lines + "\n")
	return errors.Join(err, f.Close())
}

// render renders the box's site in the clone.
func (s *site) render() {
	s.r.Helper()
	s.must("berth", "render", siteName)
}

// push commits everything in the clone and pushes it; it returns when the git server has it.
func (s *site) push(subject string) {
	s.r.Helper()
	s.must("git", "add", "--all")
	s.must("git", "commit", "--quiet", "--message", subject)
	s.must("git", "push", "--quiet", "origin", "HEAD")
	s.head = s.must("git", "rev-parse", "HEAD")
}

// revertLast undoes the clone's last commit with a commit of its own, as a person does, and pushes it.
func (s *site) revertLast() {
	s.r.Helper()
	s.must("git", "revert", "--no-edit", "HEAD")
	s.must("git", "push", "--quiet", "origin", "HEAD")
	s.head = s.must("git", "rev-parse", "HEAD")
}

// deliver renders, pushes and waits until the cluster follows; it returns how long that took from the push on.
func (s *site) deliver(subject string) time.Duration {
	s.r.Helper()
	s.render()
	s.push(subject)
	return s.converged()
}

// kustomizations reads the state of the site's delivery.
func (s *site) kustomizations() ([]kustomization, error) {
	out, err := s.r.box.Kubectl(s.r.ctx, "get", "kustomizations", "-n", flux, "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct{ Items []kustomization }
	err = json.Unmarshal([]byte(out), &list)
	return list.Items, err
}

// lag says what keeps the cluster from being at the clone's last push; nil: nothing.
func (s *site) lag() error {
	list, err := s.kustomizations()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("no Kustomization")
	}
	var waits []error
	for _, k := range list {
		ready, why := k.ready()
		if !ready || !strings.HasSuffix(k.Status.LastAppliedRevision, s.head) {
			waits = append(waits, fmt.Errorf("%s at %s: %s", k.Metadata.Name, k.Status.LastAppliedRevision, why))
		}
	}
	return errors.Join(waits...)
}

// converged waits until every layer is Ready at the clone's last push.
func (s *site) converged() time.Duration {
	s.r.Helper()
	began := time.Now()
	s.r.eventually(converges, "the cluster follows "+s.head[:8], func() (bool, string) {
		err := s.lag()
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	return time.Since(began)
}

// refused waits until the Kustomization says that the last push does not work, and returns why.
func (s *site) refused(name string) string {
	s.r.Helper()
	var why string
	s.r.eventually(converges, name+" is not Ready at "+s.head[:8], func() (bool, string) {
		list, err := s.kustomizations()
		if err != nil {
			return false, err.Error()
		}
		for _, k := range list {
			if k.Metadata.Name != name {
				continue
			}
			for _, c := range k.Status.Conditions {
				if c.Type == "Ready" {
					why = c.Reason + ": " + c.Message
					attempted := strings.HasSuffix(k.Status.LastAttemptedRevision, s.head) || strings.Contains(c.Message, s.head)
					return c.Status == "False" && attempted && c.Reason != "DependencyNotReady", why
				}
			}
		}
		return false, "no Kustomization " + name
	})
	return why
}

// restore makes the repository hold what the test found, and waits until the cluster does. It reports instead of ending
// the test, which has ended.
func (s *site) restore() error {
	if s.head == s.found {
		return nil
	}
	// After a revert the repository is right already; what counts is that the cluster follows.
	if _, err := s.command("git", "diff", "--quiet", s.found, s.head); err != nil {
		for _, argv := range [][]string{
			{"git", "reset", "--quiet", "--hard", s.head},
			{"git", "read-tree", "--reset", "-u", s.found},
			{"git", "commit", "--quiet", "--message", "Put the site back after a test"},
			{"git", "push", "--quiet", "origin", "HEAD"},
		} {
			if _, err := s.command(argv...); err != nil {
				return err
			}
		}
		head, err := s.command("git", "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		s.head = strings.TrimSpace(head)
	}
	deadline := time.Now().Add(converges)
	for {
		lag := s.lag()
		if lag == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", converges, lag)
		}
		time.Sleep(time.Second)
	}
}
