package decision_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/autoscaler/record"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// A model's verdict counts as far as the model does what the real ones do. Logs of real rounds (autoscaler decisions), recorded on the lab
// in a box from a real slurmctld and a real API server, are replayed here: from what one round saw, through what it did, by events of
// the model's environment, the model must be able to come to what the next round saw. What a log does not say (how many jobs
// wait, how far the cache of pods is behind, whether an action that failed was done) is guessed: all guesses go on until what was
// seen rules them out, and a log that rules out all of them is one that the model does not explain.

// guess is what may be true of a node, in a form that can be compared. Numbers of jobs are one and more alike.
type guess struct {
	state  slurmrest.NodeState
	reason string
	wanted int
	lost   int
	person bool

	pod  bool
	live decision.Pod // as it is
	old  bool         // it is from before this power-up
	jobs int

	cached bool
	seen   decision.Pod // as the autoscaler's cache has it
}

// newUID is the UID of a pod that was made and not yet seen.
const newUID = "new"

// node is the model's node of the guess.
func (g guess) node(name string) *modelNode {
	n := &modelNode{node: slurmrest.Node{Name: name, State: g.state, Reason: g.reason}, wanted: g.wanted, lost: g.lost, person: g.person}
	if g.pod {
		n.worker = &worker{pod: g.live, jobs: g.jobs}
		if g.old {
			n.worker.born = -1
		}
	}
	n.alloc()
	return n
}

// after is the guess that the model's node has become; the cache stays as it was.
func (g guess) after(n *modelNode) guess {
	next := guess{
		state: n.node.State, reason: kindOfReason(n.node.Reason), wanted: min(n.wanted, 1), lost: min(n.lost, 1), person: n.person,
		cached: g.cached, seen: g.seen,
	}
	if n.worker != nil {
		next.pod, next.live, next.old, next.jobs = true, n.worker.pod, n.worker.born != n.powerUp, min(n.worker.jobs, 1)
		next.live.EndedBecause = ""
	}
	return next
}

// reasons are those that a decision tells apart.
const (
	ours, silent, late, foreign = "berth: ", "Not responding", "ResumeTimeout reached", "fan broken"
)

func kindOfReason(reason string) string {
	for _, kind := range []string{ours, silent, late} {
		if strings.HasPrefix(reason, kind) {
			return kind
		}
	}
	if reason == "" {
		return ""
	}
	return foreign
}

// shown is what a decision reads of a node, as far as the model has it.
func shown(n *slurmrest.Node) string {
	phase := decision.PhaseOf(n)
	words := []string{phase.String()}
	for state, word := range map[slurmrest.NodeState]string{slurmrest.Down: "down", slurmrest.Drain: "drain", slurmrest.PowerDown: "asked", slurmrest.Maintenance: "maintenance"} {
		if n.State.Has(state) && (state != slurmrest.PowerDown || phase == decision.Up || phase == decision.Off) {
			words = append(words, word)
		}
	}
	if n.State.Has(slurmrest.Down | slurmrest.Drain) {
		words = append(words, kindOfReason(n.Reason))
	} else if phase == decision.Up || phase == decision.Starting {
		words = append(words, fmt.Sprint("busy ", decision.Busy(n)))
	}
	slices.Sort(words[1:])
	return strings.Join(words, ", ")
}

// podShown is what a decision reads of a pod, as far as the model has it.
func podShown(p decision.Pod) decision.Pod {
	shown := decision.Pod{UID: p.UID, Ended: p.Ended, Terminating: p.Terminating, SeenUp: p.SeenUp, Busy: p.Busy, Template: p.Template}
	if p.Problem != "" && !p.Ended && !p.Terminating {
		shown.Problem = "it has a problem"
	}
	return shown
}

// follower follows one node of a log.
type follower struct {
	name    string
	guesses map[guess]bool
	uids    map[string]bool // that were seen
	events  []int           // that the log may have; what it never shows is left out
}

// eventsOf are the events of the environment that the log gives a reason to think of.
func eventsOf(seen []record.Node, pods []decision.Pod) []int {
	events := []int{0, 1, 2, 3, 4, 5, 8, 10, 16}
	add := func(event int, when bool) {
		if when && !slices.Contains(events, event) {
			events = append(events, event)
		}
	}
	for _, n := range seen {
		add(6, strings.HasPrefix(n.Reason, late))
		add(11, kindOfReason(n.Reason) == foreign)
		add(15, n.State.Has(slurmrest.Maintenance))
		add(18, n.State.Has(slurmrest.PowerDown) && kindOfReason(n.Reason) == foreign)
	}
	for _, p := range pods {
		add(7, p.Ended)
		add(9, p.Terminating)
		add(17, p.Terminating)
		add(14, p.Problem != "")
	}
	return events
}

// spread adds what may have happened since, without the autoscaler.
func (f *follower) spread(m *model) {
	front := make([]guess, 0, len(f.guesses))
	for g := range f.guesses {
		front = append(front, g)
	}
	note := func(next guess) {
		if !f.guesses[next] {
			f.guesses[next] = true
			front = append(front, next)
		}
	}
	for len(front) > 0 {
		g := front[len(front)-1]
		front = front[:len(front)-1]
		for _, event := range f.events {
			n := g.node(f.name)
			m.environment(n, event)
			note(g.after(n))
		}
		// One of several jobs may end or begin without a trace.
		for _, jobs := range []int{1, 2} {
			if n := g.node(f.name); n.worker != nil && n.worker.jobs > 0 {
				n.worker.jobs = jobs
				n.alloc()
				m.environment(n, 2)
				note(g.after(n))
			}
		}
		caught := g
		caught.cached, caught.seen = g.pod, g.live
		note(caught)
	}
}

// act does an action on all guesses; where it is not known whether it was done, both are kept.
func (f *follower) act(m *model, done record.Done) {
	f.spread(m)
	next := map[guess]bool{}
	for g := range f.guesses {
		if done.Failed != "" {
			next[g] = true
		}
		n := g.node(f.name)
		m.nodes = []*modelNode{n}
		m.do(done.Action)
		if n.worker != nil && n.worker.pod.UID != g.live.UID {
			n.worker.pod.UID = newUID
		}
		next[g.after(n)] = true
	}
	f.guesses = next
}

// see keeps the guesses that show what was seen.
func (f *follower) see(m *model, node *slurmrest.Node, pod *decision.Pod) error {
	f.spread(m)
	next := map[guess]bool{}
	nodesAlike := false
	for g := range f.guesses {
		if shown(&g.node(f.name).node) != shown(node) {
			continue
		}
		nodesAlike = true
		if g.cached != (pod != nil) {
			continue
		}
		if pod != nil {
			seen, want := podShown(g.seen), podShown(*pod)
			if seen.UID == newUID && !f.uids[want.UID] {
				seen.UID = want.UID
			}
			if seen != want {
				continue
			}
			if g.seen.UID == newUID {
				g.seen.UID = want.UID
				if g.live.UID == newUID {
					g.live.UID = want.UID
				}
			}
		}
		next[g] = true
	}
	if len(next) == 0 {
		what := fmt.Sprintf("node %s (%s)", f.name, shown(node))
		if nodesAlike {
			what += fmt.Sprintf(", pod %+v", pod)
		}
		return fmt.Errorf("the model cannot come to %s", what)
	}
	if pod != nil {
		f.uids[pod.UID] = true
	}
	f.guesses = next
	return nil
}

// first are the guesses from what a log begins with.
func (f *follower) first(node *slurmrest.Node, pod *decision.Pod) {
	g := guess{state: node.State &^ (slurmrest.Allocated | slurmrest.Completing | slurmrest.Planned), reason: kindOfReason(node.Reason)}
	if node.State.Has(slurmrest.Allocated) {
		g.state |= slurmrest.Mixed
	}
	g.person = node.State.Has(slurmrest.Drain|slurmrest.Down) && g.reason == foreign
	if pod != nil {
		f.uids[pod.UID] = true
		g.pod, g.cached, g.live = true, true, podShown(*pod)
		g.live.Name, g.seen = f.name, g.live
	}
	f.guesses = map[guess]bool{}
	for _, old := range []bool{false, true} {
		for jobs := range 2 {
			g.old, g.wanted, g.jobs = old && g.pod, 0, 0
			if g.pod && decision.PhaseOf(node) == decision.Up {
				g.jobs = jobs
			} else {
				g.wanted = jobs
			}
			f.guesses[g] = true
		}
	}
}

// follow replays a log.
func follow(log io.Reader) (rounds int, err error) {
	type line struct {
		round record.Round
		state record.State
	}
	var lines []line
	nodesSeen, podsSeen := map[string][]record.Node{}, map[string][]decision.Pod{}
	err = record.Read(log, func(round record.Round, state record.State) error {
		lines = append(lines, line{round, state})
		for name, node := range state.Nodes {
			nodesSeen[name] = append(nodesSeen[name], node)
		}
		for name, pod := range state.Pods {
			podsSeen[name] = append(podsSeen[name], pod)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	m := &model{bug: "none: what the model would not do is only one of the guesses", proven: map[string]bool{}}
	following := map[string]*follower{}
	for _, l := range lines {
		m.pool, m.now = l.state.Pool, l.round.At
		if difference := record.Difference(l.round, l.state); difference != "" {
			return rounds, fmt.Errorf("%s %s: %s", l.round.At.Format("15:04:05.000"), l.round.WorkerPool, difference)
		}
		for name, node := range l.round.Nodes {
			if node == nil { // it left slurm.conf; what comes back under its name is another
				delete(following, name)
			}
		}
		for name, node := range l.state.Nodes {
			var pod *decision.Pod
			if p, ok := l.state.Pods[name]; ok {
				pod = &p
			}
			shownNode := &slurmrest.Node{Name: name, State: node.State, Reason: node.Reason, AllocCPUs: node.AllocCPUs}
			f := following[name]
			if f == nil {
				f = &follower{name: name, uids: map[string]bool{}, events: eventsOf(nodesSeen[name], podsSeen[name])}
				f.first(shownNode, pod)
				following[name] = f
			} else if err := f.see(m, shownNode, pod); err != nil {
				return rounds, fmt.Errorf("%s: %w", l.round.At.Format("15:04:05.000"), err)
			}
			done := l.round.Done
			if l.round.Snapshot { // it does not say what was done
				actions, _ := l.state.Decide(l.round.At)
				for _, action := range actions {
					done = append(done, record.Done{Action: action, Failed: "perhaps"})
				}
			}
			for _, did := range done {
				if did.Node == name {
					f.act(m, did)
				}
			}
		}
		rounds++
	}
	if rounds == 0 {
		return 0, errors.New("an empty log")
	}
	return rounds, nil
}

// The model explains every recorded log, and this program decides in each of its rounds as the recorded one did.
func TestModelExplainsRecordedLogs(t *testing.T) {
	logs, err := filepath.Glob("testdata/*.jsonl")
	if dir := os.Getenv("BERTH_DECISIONS"); err == nil && dir != "" {
		logs, err = filepath.Glob(filepath.Join(dir, "*.jsonl"))
	}
	if err != nil || len(logs) == 0 {
		t.Fatal("no logs", err)
	}
	for _, file := range logs {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			log, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = log.Close() }()
			if rounds, err := follow(log); err != nil {
				t.Errorf("after %d rounds: %v", rounds, err)
			}
		})
	}
}

// look is what a round of a made-up log saw of its one node; what it did is what is decided.
type look struct {
	state, reason string
	pod           string // UID, and what is to be said of it
}

// write makes a log of it.
func write(t *testing.T, looks []look) io.Reader {
	recorder, at := new(record.Recorder), time.Unix(1_800_000_000, 0)
	for _, l := range looks {
		at = at.Add(time.Second)
		pods := map[string]*decision.Pod{}
		if uid, rest, _ := strings.Cut(l.pod, " "); uid != "" {
			pods["n-0"] = &decision.Pod{
				Name: "n-0", UID: uid, Template: "t1", SeenUp: strings.Contains(rest, "seen"), Busy: strings.Contains(rest, "busy"),
				Terminating: strings.Contains(rest, "terminating"),
			}
		}
		node := &slurmrest.Node{Name: "n-0", State: words(t, l.state), Reason: l.reason}
		pool := decision.Pool{Name: "n", Max: 1, Template: "t1", TemplateProven: true, ConfigAccepted: true}
		state := record.NewState(pool, []string{"n-0"}, map[string]*slurmrest.Node{"n-0": node}, pods)
		actions, _ := state.Decide(at)
		var done []record.Done
		for _, action := range actions {
			done = append(done, record.Done{Action: action})
		}
		recorder.Add(at, "cpu", state, done)
	}
	var log bytes.Buffer
	if err := recorder.WriteSince(&log, time.Time{}); err != nil {
		t.Fatal(err)
	}
	return &log
}

// A model that explained anything would say nothing.
func TestModelExplainsNotEverything(t *testing.T) {
	const (
		wanted = "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP"
		left   = "IDLE+CLOUD+POWERING_DOWN"
	)
	life := []look{{off, "", ""}, {wanted, "", ""}, {wanted, "", "a"}, {busy, "", "a"}, {busy, "", "a busy seen"}, {up, "", "a busy seen"}, {left, "", "a seen"}}
	for name, test := range map[string]struct {
		looks []look
		want  string
	}{
		"a life":                      {life, ""},
		"the cache is behind":         {append(slices.Clone(life), look{off, "", "a seen"}, look{wanted, "", "a seen terminating"}, look{wanted, "", ""}), ""},
		"a node up without a pod":     {[]look{{off, "", ""}, {busy, "", ""}}, "cannot come to node n-0 (up, busy true)"},
		"a pod that nobody made":      {[]look{{off, "", ""}, {wanted, "", "a"}}, "cannot come to node n-0 (starting, busy true), pod"},
		"an old pod serves again":     {append(slices.Clone(life), look{off, "", "a seen terminating"}, look{wanted, "", "a seen terminating"}, look{busy, "", "a seen terminating"}), "cannot come to node n-0 (up"},
		"another pod takes its place": {append(slices.Clone(life[:4]), look{busy, "", "b"}), "cannot come to node n-0 (up, busy true), pod"},
		"down for nothing":            {append(slices.Clone(life[:5]), look{"DOWN+CLOUD", "berth: its pod is gone", "a busy seen"}), "cannot come to node n-0 (up, berth: , down)"},
		"an end is undone":            {append(slices.Clone(life), look{off, "", "a seen terminating"}, look{off, "", "a seen"}), "cannot come to node n-0 (off), pod"},
	} {
		_, err := follow(write(t, test.looks))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
