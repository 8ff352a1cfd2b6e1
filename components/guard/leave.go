package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/accounting"
)

// keepAccounts makes the database say what the site does. What left the site since is deleted once its jobs have ended; until then
// note says what waits for which job, and nothing else does. An account that left and comes back, or that people made, is not touched.
func (g *Guard) keepAccounts(ctx context.Context, config *v1alpha1.SlurmConfig) (did []string, note string, err error) {
	before, err := g.Store.Owned()
	if err != nil {
		return nil, "", fmt.Errorf("read the state volume: %w", err)
	}
	wanted := accounting.OwnedBy(config.Spec.Accounts)
	// Noted before it is made: what is forgotten would stay for ever.
	if err := g.Store.SetOwned(before, before.And(wanted)); err != nil {
		return nil, "", fmt.Errorf("write the state volume: %w", err)
	}
	did, err = g.Accounts.Reconcile(ctx, config.Spec.ClusterName, config.Spec.Accounts)
	if err != nil {
		return did, "", err
	}
	gone := before.Without(wanted)
	if gone.Empty() || len(wanted.Accounts) == 0 { // no site is without accounts: rather a SlurmConfig that was made without them
		return did, "", nil
	}
	deleted, stays, why := g.Accounts.Leave(ctx, config.Spec.ClusterName, gone)
	if err := g.Store.SetOwned(before.And(wanted), stays.And(wanted)); err != nil {
		return append(did, deleted...), "", fmt.Errorf("write the state volume: %w", err)
	}
	return append(did, deleted...), strings.Join(why, "; "), nil
}

// ownedFile on the state volume holds what of the database is the site's, so that what leaves the site can be told from what people made.
const ownedFile = "accounts.json"

// Owned reads what of the database is the site's; nothing where it was never noted.
func (s *Store) Owned() (owned accounting.Owned, err error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, ownedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return owned, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &owned)
	}
	if err != nil {
		return accounting.Owned{}, fmt.Errorf("%s: %w", ownedFile, err)
	}
	return owned, nil
}

// SetOwned notes what of the database is the site's, where it differs from before.
func (s *Store) SetOwned(before, now accounting.Owned) error {
	if reflect.DeepEqual(before, now) {
		return nil
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(s.Dir, ownedFile), text, 0o644)
}
