// Package accounting keeps accounts, users and qualities of service in Slurm's database as a SlurmConfig names them. It
// compares what sacctmgr shows with what is wanted, and adds and modifies. It deletes only what left the site and has no jobs.
package accounting

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// step is one sacctmgr command, without the program's name and its -i.
type step []string

func (s step) String() string { return strings.Join(s, " ") }

// plan returns the commands that bring the database to what is wanted, in an order in which each can succeed: QOS, then
// accounts from the root down, then users.
func plan(cluster string, wanted v1alpha1.Accounts, have *database) ([]step, error) {
	var steps []step
	if !have.clusters[strings.ToLower(cluster)] {
		steps = append(steps, step{"add", "cluster", cluster})
	}
	for _, qos := range wanted.QOS {
		steps = append(steps, planQOS(qos, have)...)
	}
	ordered, err := fromTheRoot(wanted.Accounts)
	if err != nil {
		return nil, err
	}
	for _, account := range ordered {
		if len(account.QOS) == 0 { // all
			account.QOS = []string{"normal"}
			for _, qos := range wanted.QOS {
				if !slices.Contains(account.QOS, strings.ToLower(qos.Name)) {
					account.QOS = append(account.QOS, strings.ToLower(qos.Name))
				}
			}
		}
		steps = append(steps, planAccount(cluster, account, have)...)
	}
	for _, user := range wanted.Users {
		steps = append(steps, planUser(cluster, user, have)...)
	}
	return steps, nil
}

func planQOS(qos v1alpha1.QOS, have *database) []step {
	name := strings.ToLower(qos.Name)
	var steps []step
	row, exists := have.qos[name]
	if !exists {
		steps = append(steps, step{"add", "qos", name})
		row = record{}
	}
	var set []string
	set = appendChange(set, "priority", strconv.FormatInt(qos.Priority, 10), number(row["priority"], "0"))
	set = appendList(set, "preempt", qos.Preempt, row["preempt"])
	if mode := qos.PreemptMode; mode != "" {
		set = appendChange(set, "preemptmode", strings.ToLower(mode), strings.ToLower(row["preemptmode"]))
	}
	set = appendList(set, "flags", qos.Flags, row["flags"])
	set = appendDuration(set, "maxwall", qos.MaxWall, row["maxwall"])
	set = appendTRES(set, "grptres", qos.GrpTRES, row["grptres"])
	set = appendTRES(set, "maxtresperuser", qos.MaxTRESPerUser, row["maxtrespu"])
	set = appendLimit(set, "maxjobsperuser", qos.MaxJobsPerUser, row["maxjobspu"])
	if factor := qos.UsageFactor; factor != "" || row["usagefactor"] != "" {
		if factor == "" {
			factor = "1"
		}
		if !sameFloat(factor, row["usagefactor"]) {
			set = append(set, "usagefactor="+factor)
		}
	}
	if len(set) > 0 {
		steps = append(steps, append(step{"modify", "qos", "where", "name=" + name, "set"}, set...))
	}
	return steps
}

func planAccount(cluster string, account v1alpha1.Account, have *database) []step {
	name := strings.ToLower(account.Name)
	parent := strings.ToLower(account.Parent)
	if parent == "" {
		parent = "root"
	}
	description := account.Description
	if description == "" {
		description = name // sacctmgr's own default
	}
	var steps []step
	row, exists := have.accountAssociations[name]
	if !exists {
		steps = append(steps, step{"add", "account", "name=" + name, "cluster=" + cluster, "parent=" + parent, "description=" + description})
		row = record{"parentname": parent, "share": "1"}
	} else if have.accounts[name]["descr"] != description {
		steps = append(steps, step{"modify", "account", "where", "name=" + name, "set", "description=" + description})
	}
	var set []string
	set = appendChange(set, "parent", parent, row["parentname"])
	set = append(set, associationLimits(account.Shares, account.GrpTRES, account.MaxJobs, row)...)
	set = appendTRES(set, "grptresmins", account.GrpTRESMins, row["grptresmins"])
	set = appendLimit(set, "maxsubmitjobs", account.MaxSubmit, row["maxsubmit"])
	set = appendList(set, "qoslevel", account.QOS, row["qos"])
	if len(set) > 0 {
		steps = append(steps, append(step{"modify", "account", "where", "name=" + name, "cluster=" + cluster, "set"}, set...))
	}
	return steps
}

func planUser(cluster string, user v1alpha1.User, have *database) []step {
	name := strings.ToLower(user.Name)
	defaultAccount := strings.ToLower(user.DefaultAccount)
	accounts := []string{defaultAccount}
	for _, account := range user.Accounts {
		if account = strings.ToLower(account); !slices.Contains(accounts, account) {
			accounts = append(accounts, account)
		}
	}
	var steps []step
	for _, account := range accounts {
		row, exists := have.userAssociations[name+"/"+account]
		if !exists {
			steps = append(steps, step{"add", "user", "name=" + name, "cluster=" + cluster, "account=" + account})
			row = record{"share": "1"}
		}
		if set := associationLimits(user.Shares, user.GrpTRES, user.MaxJobs, row); len(set) > 0 {
			where := step{"modify", "user", "where", "name=" + name, "cluster=" + cluster, "account=" + account, "set"}
			steps = append(steps, append(where, set...))
		}
	}
	var set []string
	row, exists := have.users[name]
	if !exists {
		row = record{"defaultaccount": defaultAccount} // the first account that a user is added to
	}
	set = appendChange(set, "defaultaccount", defaultAccount, row["defaultaccount"])
	admin := "none"
	if user.Admin {
		admin = "administrator"
	}
	if is := strings.ToLower(row["adminlevel"]); admin != is && !(admin == "none" && is == "") {
		set = append(set, "adminlevel="+admin)
	}
	if len(set) > 0 {
		steps = append(steps, append(step{"modify", "user", "where", "name=" + name, "set"}, set...))
	}
	return steps
}

func associationLimits(shares int64, grpTRES map[string]int64, maxJobs int64, row record) []string {
	var set []string
	set = appendChange(set, "fairshare", strconv.FormatInt(max(shares, 1), 10), number(row["share"], "1"))
	set = appendTRES(set, "grptres", grpTRES, row["grptres"])
	return appendLimit(set, "maxjobs", maxJobs, row["maxjobs"])
}

// fromTheRoot orders accounts so that each comes after its parent.
func fromTheRoot(accounts []v1alpha1.Account) ([]v1alpha1.Account, error) {
	byName := make(map[string]v1alpha1.Account, len(accounts))
	for _, account := range accounts {
		byName[strings.ToLower(account.Name)] = account
	}
	var ordered []v1alpha1.Account
	placed, placing := map[string]bool{}, map[string]bool{}
	var place func(name string) error
	place = func(name string) error {
		account, ours := byName[name]
		if !ours || placed[name] {
			return nil // the root, or an account that somebody else keeps
		}
		if placing[name] {
			return fmt.Errorf("account %s is its own ancestor", name)
		}
		placing[name] = true
		if err := place(strings.ToLower(account.Parent)); err != nil {
			return err
		}
		placed[name] = true
		ordered = append(ordered, account)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if err := place(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

func appendChange(set []string, key, want, is string) []string {
	if want == is {
		return set
	}
	return append(set, key+"="+want)
}

// appendLimit sets a limit, or takes it off (-1) where none is wanted.
func appendLimit(set []string, key string, want int64, is string) []string {
	if want == 0 {
		if is == "" {
			return set
		}
		return append(set, key+"=-1")
	}
	return appendChange(set, key, strconv.FormatInt(want, 10), is)
}

// appendList sets a comma-separated list, whatever its order.
func appendList(set []string, key string, want []string, is string) []string {
	wanted, has := fold(want), fold(strings.Split(is, ","))
	if slices.Equal(wanted, has) {
		return set
	}
	if len(want) == 0 {
		if key == "flags" {
			return append(set, key+"=-1")
		}
		return append(set, key+"=")
	}
	return append(set, key+"="+strings.Join(want, ","))
}

func fold(words []string) []string {
	var folded []string
	for _, word := range words {
		if word = strings.ToLower(strings.TrimSpace(word)); word != "" {
			folded = append(folded, word)
		}
	}
	slices.Sort(folded)
	return slices.Compact(folded)
}

// appendTRES sets each TRES that differs, and takes off (-1) each that is limited and should not be.
func appendTRES(set []string, key string, want map[string]int64, is string) []string {
	has := parseTRES(is)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if amount, limited := has[name]; !limited || amount != want[name] {
			parts = append(parts, fmt.Sprintf("%s=%d", name, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if _, wanted := want[name]; !wanted {
			parts = append(parts, name+"=-1")
		}
	}
	if len(parts) == 0 {
		return set
	}
	return append(set, key+"="+strings.Join(parts, ","))
}

// parseTRES reads "cpu=4,mem=10G,gres/gpu=2"; memory is in MiB, as Slurm takes it without a unit.
func parseTRES(text string) map[string]int64 {
	amounts := map[string]int64{}
	for _, part := range strings.Split(text, ",") {
		name, value, found := strings.Cut(part, "=")
		if !found {
			continue
		}
		factor := 1.0
		if name == "mem" || strings.HasSuffix(value, "M") {
			unit := strings.TrimLeft(value, "0123456789.")
			value = strings.TrimSuffix(value, unit)
			factor = map[string]float64{"K": 1.0 / 1024, "G": 1 << 10, "T": 1 << 20, "P": 1 << 30}[unit]
			if factor == 0 {
				factor = 1
			}
		}
		if amount, err := strconv.ParseFloat(value, 64); err == nil {
			amounts[name] = int64(amount * factor)
		}
	}
	return amounts
}

func appendDuration(set []string, key, want, is string) []string {
	wanted, has := seconds(want), seconds(is)
	switch {
	case wanted == has:
		return set
	case want == "":
		return append(set, key+"=-1")
	}
	return append(set, key+"="+want)
}

// seconds reads Slurm's times: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]; -1 for
// none.
func seconds(text string) int64 {
	if text == "" || strings.EqualFold(text, "unlimited") || text == "-1" {
		return -1
	}
	days, rest, hasDays := strings.Cut(text, "-")
	if !hasDays {
		days, rest = "0", text
	}
	var parts []int64
	for _, part := range strings.Split(rest, ":") {
		value, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return -2 // no time: set it, and let sacctmgr say so
		}
		parts = append(parts, value)
	}
	day, err := strconv.ParseInt(days, 10, 64)
	if err != nil || len(parts) > 3 {
		return -2
	}
	weights := map[int][]int64{1: {60}, 2: {60, 1}, 3: {3600, 60, 1}}[len(parts)]
	if hasDays {
		weights = []int64{3600, 60, 1}[:len(parts)]
	}
	total := day * 86400
	for i, part := range parts {
		total += part * weights[i]
	}
	return total
}

func number(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func sameFloat(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}
