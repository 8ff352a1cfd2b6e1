package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-hpc/berth/components/advisor/rl"
)

// game has two arms and ends after five steps; arm 1 is better. It remembers which episodes it was given.
type game struct {
	mu       *sync.Mutex
	episodes *[]uint64
	steps    int
	state    rl.State
}

func newGame(mu *sync.Mutex, episodes *[]uint64) *game {
	return &game{mu: mu, episodes: episodes, state: rl.State{N: 2, X: []float32{1, 0, 0, 1}, Global: []float32{}}}
}

func (g *game) Features() (int, int) { return 2, 0 }

func (g *game) Reset(e uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	*g.episodes = append(*g.episodes, e)
	g.steps = 0
	return nil
}
func (g *game) Observe() *rl.State { return &g.state }
func (g *game) Done() bool         { return g.steps == 5 }

func (g *game) Step(a int) (rl.Outcome, error) {
	g.steps++
	return rl.Outcome{Reward: float64(a), Elapsed: 1, Done: g.steps == 5}, nil
}

func config() rl.Config {
	c := rl.Defaults()
	c.Hidden, c.Cosines, c.Batch, c.NormalizeReward = []int{8, 8}, 8, 16, false
	c.ActorRate, c.CriticRate, c.FixedAlpha, c.InitAlpha, c.Gamma = 1e-2, 1e-2, true, .02, .5
	return c
}

func collector(t *testing.T, dir string, steps int64) *rl.Trainer {
	t.Helper()
	l, err := rl.NewLearner(config(), rl.Encoding{Version: "game", Row: 2})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := rl.NewCollector(rl.Plan{Steps: steps, Warmup: 100, Every: 2, Save: 200, Replay: 500}, l)
	if err != nil {
		t.Fatal(err)
	}
	tr.Dir = dir
	return tr
}

// train runs a learner to its end with the actors that there are.
func train(ctx context.Context, tr *rl.Trainer) error {
	l, err := Listen(tr.Dir, "127.0.0.1:0", "settings", tr.Episode)
	if err != nil {
		return err
	}
	defer l.Close(2 * time.Second)
	publish := func() {
		l.Publish(Policy{Version: tr.Learner.ActorUpdates, Params: slices.Clone(tr.Learner.Actor.P), Random: tr.Step < tr.Plan.Warmup})
		tr.Episode = l.Episode()
	}
	publish()
	return tr.Collect(func() *rl.Stretch { return l.Next(ctx) }, publish)
}

type team struct {
	wg       sync.WaitGroup
	mu       sync.Mutex
	episodes []uint64
	made     int64
}

func (m *team) start(t *testing.T, dir string, n int) {
	for i := range n {
		a, err := rl.NewActor(fmt.Sprint("actor-", i), config(), newGame(&m.mu, &m.episodes), rl.Encoding{Version: "game", Row: 2})
		if err != nil {
			t.Fatal(err)
		}
		m.wg.Go(func() {
			made, err := Act(t.Context(), dir, "settings", a, 3, 20*time.Second)
			if err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
			m.mu.Lock()
			m.made += made
			m.mu.Unlock()
		})
	}
}

// Three actors play different episodes, the learner learns the better arm from them, and they end when it does. A learner that
// goes away and comes back goes on from its checkpoint with the same actors.
func TestTraining(t *testing.T) {
	dir := t.TempDir()
	m := &team{}
	m.start(t, dir, 3)
	first := collector(t, dir, 600)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l, err := Listen(dir, "127.0.0.1:0", "settings", 0)
	if err != nil {
		t.Fatal(err)
	}
	publish := func() {
		l.Publish(Policy{Version: first.Learner.ActorUpdates, Params: slices.Clone(first.Learner.Actor.P), Random: first.Step < 100})
		first.Episode = l.Episode()
	}
	publish()
	err = first.Collect(func() *rl.Stretch {
		if first.Step > 400 {
			stop()
		}
		return l.Next(ctx)
	}, publish)
	if err != nil {
		t.Fatal(err)
	}
	l.server.Stop() // as a kill does: nobody is told

	second := collector(t, dir, 1200)
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	if second.Step < 400 || second.Step > first.Step || second.Online.Len() == 0 {
		t.Fatalf("resumed at step %d of %d", second.Step, first.Step)
	}
	if err := train(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	m.wg.Wait()
	if second.Step < 1200 || second.Step > 1210 || m.made < 1200 {
		t.Errorf("%d steps, of %d made", second.Step, m.made)
	}
	seen := map[uint64]int{}
	for _, e := range m.episodes {
		seen[e]++
	}
	// After the resume numbers go on from the checkpoint's: those given out after it are given again.
	if len(seen) < 200 || len(m.episodes) > len(seen)+60 {
		t.Errorf("%d episodes, %d of them different", len(m.episodes), len(seen))
	}
	if n := len(second.Curve); n == 0 || second.Curve[n-1].Return < 4.5 {
		t.Errorf("the return is %+v, the best is 5", second.Curve)
	}
	s := second.Stale
	if s.Steps == 0 || s.Mean() <= 0 || s.Mean() > 20 || s.Max < int64(s.Mean()) {
		t.Errorf("staleness %+v", s)
	}
	if _, err := os.Stat(filepath.Join(dir, "learner.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("learner.json stays behind: %v", err)
	}
	latest, err := rl.ReadLatest(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rl.LoadCheckpoint(filepath.Join(dir, "checkpoints", latest.Checkpoint+".safetensors"))
	if err != nil || !c.Header.Actors {
		t.Errorf("the checkpoint does not say that others acted: %v", err)
	}
}

// A stretch whose answer was lost is not learned from twice; whoever lacks the secret, has other settings or sends something
// else is refused with the reason, and disturbs nothing.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir, "127.0.0.1:0", "settings", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(0)
	l.Publish(Policy{Params: []float32{1}})
	var mu sync.Mutex
	var episodes []uint64
	a, err := rl.NewActor("a", config(), newGame(&mu, &episodes), rl.Encoding{Row: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Begin(1); err != nil {
		t.Fatal(err)
	}
	s, err := a.Stretch(3, true)
	if err != nil {
		t.Fatal(err)
	}
	if s.Steps() != 3 {
		t.Errorf("%d steps", s.Steps())
	}
	c, err := connect(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	encode := func(settings string) []byte {
		b, err := s.Encode(map[string]string{"settings": settings, "version": "0"})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := encode("settings")
	for range 3 {
		if _, err := c.exchange(t.Context(), good); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.queue); n != 1 {
		t.Errorf("a stretch sent three times is in the queue %d times", n)
	}
	refused := func(what string, b []byte, code codes.Code, why string) {
		t.Helper()
		if _, err := c.exchange(t.Context(), b); status.Code(err) != code || !strings.Contains(fmt.Sprint(err), why) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("other settings", encode("else"), codes.FailedPrecondition, "give both the same flags")
	refused("garbage", []byte("garbage!"), codes.InvalidArgument, "truncated")
	refused("cut short", good[:len(good)-3], codes.InvalidArgument, "truncated")
	nan := slices.Clone(good)
	at := strings.Index(string(nan), "\x00\x00\x80\x3f") // the first 1 among the features
	copy(nan[at:], []byte{0, 0, 0xc0, 0x7f})
	refused("NaN", nan, codes.InvalidArgument, "NaN")
	c.secret = "guessed"
	refused("no secret", good, codes.Unauthenticated, "secret")
	if n := len(l.queue); n != 1 {
		t.Errorf("%d stretches in the queue", n)
	}
	st, err := os.Stat(filepath.Join(dir, "learner.json"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("learner.json: %v, %v", st, err)
	}

	if _, err := Act(t.Context(), dir, "else", a, 3, time.Second); err == nil || !strings.Contains(err.Error(), "give both the same flags") {
		t.Errorf("an actor with other settings: %v", err)
	}
	if _, err := Act(t.Context(), t.TempDir(), "settings", a, 3, 300*time.Millisecond); err == nil || !strings.Contains(err.Error(), "there has been no learner") {
		t.Errorf("an actor without a learner: %v", err)
	}
}

// A certificate that is not the learner's own is not believed.
func TestOtherCertificate(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	l, err := Listen(dir, "127.0.0.1:0", "settings", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(0)
	o, err := Listen(other, "127.0.0.1:0", "settings", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close(0)
	var m, theirs meeting
	for d, into := range map[string]*meeting{dir: &m, other: &theirs} {
		b, err := os.ReadFile(meetingPath(d))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	m.Certificate = theirs.Certificate
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(meetingPath(dir), b, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := connect(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	s := &rl.Stretch{Actor: "a", Row: 1}
	in, err := s.Encode(map[string]string{"settings": "settings"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.exchange(t.Context(), in); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
}
