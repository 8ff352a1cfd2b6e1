package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

// keysFile on the state volume holds the sum of the keys that Slurm's daemons were last made to read.
const keysFile = "keys"

// delivered is how long a new version of a Secret may take to be in every pod after it is in this one: the kubelet's period and
// the life of its cache are a minute each, and one more for a host that is slow.
const delivered = 3 * time.Minute

// rereadKeys makes Slurm's daemons read their keys when the mounted ones have changed: slurmctld, sackd and every slurmd do at a
// reconfigure, slurmdbd's pod sees to itself. It waits until the new version is in every pod. A guard that starts for the first
// time takes the keys for those that the daemons have.
func (g *Guard) rereadKeys(ctx context.Context, now time.Time) error {
	if g.Keys == "" {
		return nil
	}
	sum, err := sumKeys(g.Keys)
	if err != nil {
		return fmt.Errorf("read Slurm's keys: %w", err)
	}
	place := filepath.Join(g.Store.Dir, keysFile)
	read, err := os.ReadFile(place)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil:
		return renameio.WriteFile(place, []byte(sum), 0o644)
	case string(read) == sum:
		g.newKeys, g.newKeysSince = "", time.Time{}
		return nil
	case g.newKeys != sum:
		g.newKeys, g.newKeysSince = sum, now
		g.Log.Info("Slurm's keys have changed; the daemons read them when every pod has them", "in", delivered.String())
		return nil
	case now.Sub(g.newKeysSince) < delivered:
		return nil
	}
	if err := g.Slurm.Reconfigure(ctx); err != nil {
		return fmt.Errorf("make the daemons read Slurm's new keys: %w", err)
	}
	g.Log.Info("the daemons have read Slurm's new keys")
	return renameio.WriteFile(place, []byte(sum), 0o644)
}

// sumKeys is a digest of the keys that a daemon would take from the directory: the key set where there is one, else the single key.
func sumKeys(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "slurm.jwks"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(dir, "slurm.key"))
	}
	if err != nil {
		return "", err
	}
	// A digest of a kilobyte of random bytes tells nothing about them.
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
