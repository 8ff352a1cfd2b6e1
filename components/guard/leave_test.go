package guard

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/accounting"
)

// books are a database in which some users have jobs.
type books struct {
	busy    map[string]bool
	deleted []string
}

func (b *books) Reconcile(context.Context, string, v1alpha1.Accounts) ([]string, error) {
	return nil, nil
}

func (b *books) Leave(_ context.Context, _ string, gone accounting.Owned) (did []string, stays accounting.Owned, why []string) {
	stays.Users = map[string][]string{}
	for user, accounts := range gone.Users {
		if b.busy[user] {
			stays.Users[user] = accounts
			why = append(why, user+" has jobs")
			continue
		}
		did = append(did, user+" leaves "+strings.Join(accounts, ","))
	}
	b.deleted = append(b.deleted, did...)
	return did, stays, why
}

// What left the site is deleted once, when its jobs have ended, also by a guard that starts anew meanwhile; and nothing is deleted that
// came back, or for a SlurmConfig without accounts.
func TestWhoLeaves(t *testing.T) {
	database := &books{busy: map[string]bool{"ada": true}}
	store := &Store{Dir: t.TempDir()}
	site := func(users ...string) *v1alpha1.SlurmConfig {
		config := &v1alpha1.SlurmConfig{Spec: v1alpha1.SlurmConfigSpec{ClusterName: "lab"}}
		config.Spec.Accounts.Accounts = []v1alpha1.Account{{Name: "vision"}}
		for _, user := range users {
			config.Spec.Accounts.Users = append(config.Spec.Accounts.Users, v1alpha1.User{Name: user, DefaultAccount: "vision"})
		}
		return config
	}
	for i, step := range []struct {
		site *v1alpha1.SlurmConfig
		free string // whose jobs have ended before the step
		note string
		want string // deleted so far
	}{
		{site("ada", "bob", "eve"), "", "", "[]"},
		{site("bob", "eve"), "", "ada has jobs", "[]"},
		{site("bob"), "", "ada has jobs", "[eve leaves vision]"},
		{site("bob", "ada"), "", "", "[eve leaves vision]"}, // back again
		{site("bob"), "ada", "", "[eve leaves vision ada leaves vision]"},
		{site("bob"), "", "", "[eve leaves vision ada leaves vision]"},
		{&v1alpha1.SlurmConfig{Spec: v1alpha1.SlurmConfigSpec{ClusterName: "lab"}}, "", "", "[eve leaves vision ada leaves vision]"},
		{site("eve"), "", "", "[eve leaves vision ada leaves vision bob leaves vision]"},
	} {
		delete(database.busy, step.free)
		g := &Guard{Accounts: database, Store: store, Log: slog.New(slog.DiscardHandler)}
		outcome := g.accounts(t.Context(), step.site, "hash")
		if outcome.Note != step.note || !outcome.AccountsDone || outcome.Message != "" {
			t.Errorf("step %d: %+v, want the note %q", i, outcome, step.note)
		}
		if got := fmt.Sprint(database.deleted); got != step.want {
			t.Errorf("step %d: deleted are %s, want %s", i, got, step.want)
		}
	}
}
