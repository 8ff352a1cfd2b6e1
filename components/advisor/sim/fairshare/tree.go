// Package fairshare computes Slurm's fair-share factors (classic and Fair Tree) and multifactor job priorities, with the formulas
// and the arithmetic of slurmctld.
package fairshare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Association is an account or a user in the tree of accounts. A user's Name and its account's identify it.
type Association struct {
	Name   string
	User   bool
	Shares float64
	// Usage is the decayed raw usage (TRES-seconds) charged here; accounts include their children's.
	Usage float64

	parent   *Association
	children []*Association

	// Computed by Classic and FairTree.
	NormShares float64 // part of the machine (classic)
	NormUsage  float64 // part of all usage
	Effective  float64 // effective usage: classic, or the level's for Fair Tree
	LevelFS    float64 // Fair Tree: shares over usage among siblings
	Factor     float64 // of users
}

// Tree is the association tree of a cluster.
type Tree struct {
	root  *Association
	nodes map[string]*Association
	users map[[2]string]*Association
	// MergeTies lets siblings accounts of equal level fair share rank their children together, as Slurm's documentation says. The
	// code of slurmctld, as read in its source, does not merge them; false does as the code does.
	MergeTies bool
}

// NewTree makes a tree with the account root.
func NewTree() *Tree {
	r := &Association{Name: "root", Shares: 1}
	return &Tree{root: r, nodes: map[string]*Association{"root": r}, users: map[[2]string]*Association{}}
}

// Root is the account above all others.
func (t *Tree) Root() *Association { return t.root }

// Account adds an account under another ("" is root).
func (t *Tree) Account(name, parent string, shares float64) (*Association, error) {
	return t.add(name, parent, shares, false)
}

// User adds a user to an account.
func (t *Tree) User(name, account string, shares float64) (*Association, error) {
	return t.add(name, account, shares, true)
}

func (t *Tree) add(name, parent string, shares float64, user bool) (*Association, error) {
	if parent == "" {
		parent = "root"
	}
	p := t.nodes[parent]
	if p == nil {
		return nil, fmt.Errorf("account %q does not exist; add it before %q", parent, name)
	}
	if name == "" || !(shares >= 0) || math.IsInf(shares, 0) {
		return nil, fmt.Errorf("association %q: a name and shares of at least 0 are needed", name)
	}
	a := &Association{Name: name, User: user, Shares: shares, parent: p}
	if user {
		k := [2]string{parent, name}
		if t.users[k] != nil {
			return nil, fmt.Errorf("user %q is in account %q already", name, parent)
		}
		t.users[k] = a
	} else {
		if t.nodes[name] != nil {
			return nil, fmt.Errorf("account %q exists already", name)
		}
		t.nodes[name] = a
	}
	p.children = append(p.children, a)
	return a, nil
}

// Find gives a user's association, making account and user with one share each if they are new.
func (t *Tree) Find(account, user string) *Association {
	if account == "" {
		account = "default"
	}
	if a := t.users[[2]string{account, user}]; a != nil {
		return a
	}
	if t.nodes[account] == nil {
		t.add(account, "", 1, false) // a new name under root: add cannot fail
	}
	a, _ := t.add(user, account, 1, true)
	if a == nil {
		a, _ = t.add("(none)", account, 1, true)
	}
	if a == nil {
		a = t.users[[2]string{account, "(none)"}]
	}
	return a
}

// Charge adds usage to an association and everything above it.
func (a *Association) Charge(usage float64) {
	for ; a != nil; a = a.parent {
		a.Usage += usage
	}
}

// DecayFactor is what usage is multiplied by after so many seconds: (1 − 0.693/half-life)^seconds, which is slurmctld's
// approximation of 2^(−seconds/half-life).
func DecayFactor(seconds, halfLife float64) float64 {
	if halfLife <= 0 {
		return 1
	}
	return math.Pow(1-0.693/halfLife, seconds)
}

// Decay multiplies all usage.
func (t *Tree) Decay(factor float64) {
	t.root.walk(func(a *Association) { a.Usage *= factor })
}

func (a *Association) walk(visit func(*Association)) {
	visit(a)
	for _, c := range a.children {
		c.walk(visit)
	}
}

// Classic computes the factors of the classic algorithm (PriorityFlags=NO_FAIR_TREE): F = 2^(−(U/S)/damping), with
// U = own + (parent's U − own)·shares/siblings' shares; the accounts directly under root have their own usage as U.
func (t *Tree) Classic(damping float64) {
	if damping <= 0 {
		damping = 1
	}
	total := t.root.Usage
	t.root.NormShares, t.root.NormUsage, t.root.Effective = 1, 1, 1
	t.root.classic(total, damping)
}

func (a *Association) classic(total, damping float64) {
	siblings := 0.0
	for _, c := range a.children {
		siblings += c.Shares
	}
	for _, c := range a.children {
		part := 0.0
		if siblings > 0 {
			part = c.Shares / siblings
		}
		c.NormShares = a.NormShares * part
		c.NormUsage = 0
		if total > 0 {
			c.NormUsage = c.Usage / total
		}
		c.Effective = c.NormUsage
		if a.parent != nil {
			c.Effective = c.NormUsage + float64((a.Effective-c.NormUsage)*part)
		}
		c.Factor = ClassicFactor(c.Effective, c.NormShares, damping)
		c.classic(total, damping)
	}
}

// ClassicFactor is 2^(−(usage/shares)/damping); without shares it is 0.
func ClassicFactor(usage, shares, damping float64) float64 {
	if shares <= 0 {
		return 0
	}
	return math.Pow(2, -(usage/shares)/damping)
}

// FairTree ranks all users depth first, siblings by shares over usage, and gives each its rank over the number of users. Users
// that tie share a rank; a user that ties with an account goes first.
func (t *Tree) FairTree() {
	r := ranking{merge: t.MergeTies, users: len(t.users)}
	r.rank, r.shared = r.users, r.users
	r.visit([]*Association{t.root}, false)
}

type ranking struct {
	merge        bool
	users        int
	rank, shared int
}

// visit ranks the children of accounts, together if they are several.
func (r *ranking) visit(accounts []*Association, tied bool) {
	var children []*Association
	for _, a := range accounts {
		level(a)
		children = append(children, a.children...)
	}
	slices.SortStableFunc(children, func(a, b *Association) int {
		return cmp.Or(-cmp.Compare(a.LevelFS, b.LevelFS), usersFirst(a, b))
	})
	for i := 0; i < len(children); i++ {
		c := children[i]
		if c.User {
			if !tied {
				r.shared = r.rank
			}
			c.Factor = float64(r.shared) / float64(r.users)
			r.rank--
		} else {
			group := []*Association{c}
			for r.merge && i+1 < len(children) && !children[i+1].User && children[i+1].LevelFS == c.LevelFS {
				i++
				group = append(group, children[i])
			}
			r.visit(group, tied)
		}
		tied = i+1 < len(children) && children[i+1].LevelFS == c.LevelFS && c.User
	}
}

func usersFirst(a, b *Association) int {
	switch {
	case a.User == b.User:
		return 0
	case a.User:
		return -1
	}
	return 1
}

// level computes shares over usage among the children of an account: no shares is 0, no usage infinite.
func level(a *Association) {
	shares := 0.0
	for _, c := range a.children {
		shares += c.Shares
	}
	for _, c := range a.children {
		c.NormShares, c.Effective = 0, 0
		if shares > 0 {
			c.NormShares = c.Shares / shares
		}
		if a.Usage > 0 {
			c.Effective = c.Usage / a.Usage
		}
		switch {
		case c.NormShares == 0:
			c.LevelFS = 0
		case c.Effective == 0:
			c.LevelFS = math.Inf(1)
		default:
			c.LevelFS = c.NormShares / c.Effective
		}
	}
}
