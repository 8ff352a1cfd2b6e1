package accounting

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// Owned are the rows of the database that a site asked for: what leaves it with the site's own lines, and nothing that people made.
type Owned struct {
	// Accounts by name, with their parents' names.
	Accounts map[string]string `json:"accounts,omitempty"`
	// Users' accounts, by user name.
	Users map[string][]string `json:"users,omitempty"`
}

// OwnedBy is what the accounts ask for, names folded as slurmdbd folds them.
func OwnedBy(wanted v1alpha1.Accounts) Owned {
	owned := Owned{Accounts: map[string]string{}, Users: map[string][]string{}}
	for _, account := range wanted.Accounts {
		owned.Accounts[strings.ToLower(account.Name)] = strings.ToLower(account.Parent)
	}
	for _, user := range wanted.Users {
		owned.Users[strings.ToLower(user.Name)] = fold(append([]string{user.DefaultAccount}, user.Accounts...))
	}
	return owned
}

// And is what either has.
func (o Owned) And(other Owned) Owned {
	sum := Owned{Accounts: map[string]string{}, Users: map[string][]string{}}
	for _, part := range []Owned{o, other} {
		maps.Copy(sum.Accounts, part.Accounts)
		for user, accounts := range part.Users {
			sum.Users[user] = fold(append(slices.Clone(sum.Users[user]), accounts...))
		}
	}
	return sum
}

// Without is what the other has not.
func (o Owned) Without(other Owned) Owned {
	rest := Owned{Accounts: map[string]string{}, Users: map[string][]string{}}
	for account, parent := range o.Accounts {
		if _, stays := other.Accounts[account]; !stays {
			rest.Accounts[account] = parent
		}
	}
	for user, accounts := range o.Users {
		if gone := slices.DeleteFunc(slices.Clone(accounts), func(a string) bool { return slices.Contains(other.Users[user], a) }); len(gone) > 0 {
			rest.Users[user] = gone
		}
	}
	return rest
}

// Empty says that there is nothing.
func (o Owned) Empty() bool { return len(o.Accounts)+len(o.Users) == 0 }

// Leave deletes associations and accounts that have left the site, each only once no job of it waits or runs: slurmdbd itself
// refuses before. It returns what it did, and what stays with why. What is not there any more counts as deleted. The records of
// jobs that have ended stay.
func (d *Database) Leave(ctx context.Context, cluster string, gone Owned) (did []string, stays Owned, why []string) {
	stays = Owned{Accounts: map[string]string{}, Users: map[string][]string{}}
	remove := func(step step) error {
		_, err := d.Programs.Run(ctx, callTimeout, "sacctmgr", append([]string{"-i", "-Q"}, step...)...)
		if err != nil && strings.Contains(err.Error(), "Nothing deleted") {
			return nil
		}
		if err == nil {
			did = append(did, step.String())
		}
		return err
	}
	for _, user := range slices.Sorted(maps.Keys(gone.Users)) {
		if err := remove(step{"delete", "user", "where", "name=" + user, "cluster=" + cluster, "account=" + strings.Join(gone.Users[user], ",")}); err != nil {
			stays.Users[user] = gone.Users[user]
			why = append(why, fmt.Sprintf("user %s left %s: %s", user, strings.Join(gone.Users[user], ", "), reason(err)))
		}
	}
	if len(gone.Accounts) == 0 {
		return did, stays, why
	}
	// sacctmgr would delete an account with all that is below it, whose jobs it does not look at.
	have, err := d.read(ctx, cluster)
	if err != nil {
		stays.Accounts = gone.Accounts
		return did, stays, append(why, reason(err))
	}
	for _, account := range fromTheLeaves(gone.Accounts) {
		err := error(nil)
		if below := have.below(account); len(below) > 0 {
			err = fmt.Errorf("it goes after %s", strings.Join(below, ", "))
		} else {
			err = remove(step{"delete", "account", "where", "name=" + account, "cluster=" + cluster})
		}
		if err != nil {
			stays.Accounts[account] = gone.Accounts[account]
			why = append(why, fmt.Sprintf("account %s left: %s", account, reason(err)))
			continue
		}
		delete(have.accountAssociations, account)
	}
	return did, stays, why
}

// below names the accounts and users that hang on an account.
func (d *database) below(account string) []string {
	var names []string
	for name, row := range d.accountAssociations {
		if row["parentname"] == account {
			names = append(names, "account "+name)
		}
	}
	for _, row := range d.userAssociations {
		if row["account"] == account {
			names = append(names, "user "+row["user"])
		}
	}
	slices.Sort(names)
	return names
}

var activeJob = regexp.MustCompile(`JobID\s*=\s*(\d+)`)

// reason says in a line why sacctmgr deleted nothing.
func reason(err error) string {
	text := err.Error()
	if !strings.Contains(text, "Job(s) active") {
		return strings.Join(strings.Fields(text), " ")
	}
	var jobs []string
	for _, job := range activeJob.FindAllStringSubmatch(text, -1) {
		jobs = append(jobs, job[1])
	}
	if len(jobs) == 0 {
		return "its jobs have not ended"
	}
	return "not ended are its jobs " + strings.Join(jobs, ", ")
}

// fromTheLeaves orders accounts so that each comes before its parent.
func fromTheLeaves(parents map[string]string) []string {
	depth := func(account string) (n int) {
		for up, known := parents[account]; known && n <= len(parents); up, known = parents[up] {
			n++
		}
		return n
	}
	return slices.SortedFunc(maps.Keys(parents), func(a, b string) int {
		if da, db := depth(a), depth(b); da != db {
			return db - da
		}
		return strings.Compare(a, b)
	})
}
