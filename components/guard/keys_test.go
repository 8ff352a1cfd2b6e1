package guard

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// reconfigures counts reconfigures; nothing else of Slurm is asked for.
type reconfigures struct {
	Slurm
	done int
	err  error
}

func (r *reconfigures) Reconfigure(context.Context) error {
	if r.err == nil {
		r.done++
	}
	return r.err
}

// Slurm's daemons read new keys once: not before every pod can have them, again after a failure, and not again because the guard or
// the daemons start anew.
func TestNewKeysAreRead(t *testing.T) {
	keys, store := t.TempDir(), &Store{Dir: t.TempDir()}
	slurm := &reconfigures{}
	g := &Guard{Slurm: slurm, Store: store, Keys: keys, Log: slog.New(slog.DiscardHandler)}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(keys, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look := func(minute float64, want int) {
		t.Helper()
		err := g.rereadKeys(context.Background(), start.Add(time.Duration(minute*float64(time.Minute))))
		if err != nil && !errors.Is(err, slurm.err) {
			t.Fatal(err)
		}
		if slurm.done != want {
			t.Fatalf("minute %v: %d reconfigures, want %d", minute, slurm.done, want)
		}
	}
	put("slurm.key", "single")
	look(0, 0)
	look(10, 0)
	put("slurm.jwks", "a set")
	look(11, 0)
	look(13, 0)
	put("slurm.jwks", "another set, before the first was read")
	look(14, 0)
	look(16, 0)
	slurm.err = errors.New("slurmctld does not answer")
	look(17, 0)
	slurm.err = nil
	look(18, 1)
	look(30, 1)
	// The single key is of no account beside the set.
	put("slurm.key", "other")
	look(31, 1)
	look(40, 1)
	// A guard that starts anew in the middle of a wait begins it again.
	put("slurm.jwks", "third")
	look(41, 1)
	g = &Guard{Slurm: slurm, Store: store, Keys: keys, Log: slog.New(slog.DiscardHandler)}
	look(50, 1)
	look(53, 2)
	look(60, 2)
}
