package sprio

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/fairshare"
)

// settings are what priorities are computed with.
type settings struct {
	weights             fairshare.Weights
	maxAge              float64 // seconds
	favorSmall, classic bool
	nodes, cpus, now    float64
	partitions, qos     map[string]float64 // factors
	shares              map[[2]string]float64
}

// keyed reads lines of KEY = VALUE.
func keyed(text, sep string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, sep); ok {
			m[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return m
}

// fields reads a line of KEY=VALUE words.
func fields(line string) map[string]string {
	m := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(word, "="); ok {
			m[k] = v
		}
	}
	return m
}

// rows reads lines of so many fields.
func rows(text string, n int) ([][]string, error) {
	var out [][]string
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		f := strings.Split(line, "|")
		if len(f) != n {
			return nil, fmt.Errorf("line %d has %d fields, not %d: %s", i+1, len(f), n, line)
		}
		for k := range f {
			f[k] = strings.TrimSpace(f[k])
		}
		out = append(out, f)
	}
	return out, nil
}

func readSettings(conf map[string]string) (*settings, error) {
	if t := conf["PriorityType"]; t != "priority/multifactor" {
		return nil, fmt.Errorf("PriorityType is %q; only priority/multifactor has factors", t)
	}
	s := &settings{favorSmall: strings.EqualFold(conf["PriorityFavorSmall"], "yes"), classic: strings.Contains(conf["PriorityFlags"], "NO_FAIR_TREE")}
	if t := conf["PriorityWeightTRES"]; t != "" && t != "(null)" {
		return nil, fmt.Errorf("PriorityWeightTRES is %s; TRES factors are not compared", t)
	}
	if strings.Contains(conf["PriorityFlags"], "SMALL_RELATIVE_TO_TIME") {
		return nil, fmt.Errorf("PriorityFlags has SMALL_RELATIVE_TO_TIME, which is not simulated")
	}
	for _, w := range []struct {
		key string
		to  *float64
	}{{"PriorityWeightAge", &s.weights.Age}, {"PriorityWeightFairShare", &s.weights.FairShare}, {"PriorityWeightJobSize", &s.weights.JobSize},
		{"PriorityWeightPartition", &s.weights.Partition}, {"PriorityWeightQOS", &s.weights.QOS}} {
		v, err := strconv.ParseFloat(conf[w.key], 64)
		if err != nil {
			return nil, fmt.Errorf("%s is %q; a number was expected", w.key, conf[w.key])
		}
		*w.to = v
	}
	var err error
	if s.maxAge, err = span(conf["PriorityMaxAge"]); err != nil {
		return nil, fmt.Errorf("PriorityMaxAge: %w", err)
	}
	return s, nil
}

// span reads Slurm's [days-]hours:minutes:seconds as seconds.
func span(s string) (float64, error) {
	days, rest, has := strings.Cut(s, "-")
	if !has {
		days, rest = "0", s
	}
	parts := strings.Split(rest, ":")
	d, err := strconv.ParseFloat(days, 64)
	if err != nil || len(parts) != 3 {
		return 0, fmt.Errorf("%q is not a time like 7-00:00:00", s)
	}
	sum := d * 86400
	for i, unit := range []float64{3600, 60, 1} {
		v, err := strconv.ParseFloat(parts[i], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a time like 7-00:00:00", s)
		}
		sum += v * unit
	}
	return sum, nil
}

// readNodes counts nodes and their CPUs; a name counts once however often it is listed.
func readNodes(text string) (nodes, cpus float64, err error) {
	for line := range strings.Lines(text) {
		f := fields(line)
		if f["NodeName"] == "" {
			continue
		}
		v, err := strconv.ParseFloat(f["CPUTot"], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("node %s: CPUTot is %q", f["NodeName"], f["CPUTot"])
		}
		nodes, cpus = nodes+1, cpus+v
	}
	if nodes == 0 {
		return 0, 0, fmt.Errorf("no node is listed")
	}
	return nodes, cpus, nil
}

// readPartitions gives each partition's job factor over the largest.
func readPartitions(text string) (map[string]float64, error) {
	m := map[string]float64{}
	for line := range strings.Lines(text) {
		f := fields(line)
		if f["PartitionName"] == "" {
			continue
		}
		v, err := strconv.ParseFloat(f["PriorityJobFactor"], 64)
		if err != nil {
			return nil, fmt.Errorf("partition %s: PriorityJobFactor is %q", f["PartitionName"], f["PriorityJobFactor"])
		}
		m[f["PartitionName"]] = v
	}
	normalise(m)
	return m, nil
}

func readQOS(text string) (map[string]float64, error) {
	m := map[string]float64{}
	lines, err := rows(text, 2)
	if err != nil {
		return nil, err
	}
	for _, f := range lines {
		if m[f[0]], err = strconv.ParseFloat(f[1], 64); err != nil {
			return nil, fmt.Errorf("QOS %s: priority is %q", f[0], f[1])
		}
	}
	normalise(m)
	return m, nil
}

// normalise divides by the largest.
func normalise(m map[string]float64) {
	largest := 0.0
	for _, v := range m {
		largest = max(largest, v)
	}
	for k := range m {
		if largest > 0 {
			m[k] /= largest
		}
	}
}

// shareLine is a line of sshare: an account, or a user in it. Depth is how far its account is indented.
type shareLine struct {
	account, user string
	depth         int
	shares, usage float64
	printed       float64
	under         bool // a user, not an account
}

func readShares(text string) ([]shareLine, error) {
	var out []shareLine
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		f := strings.Split(line, "|")
		if len(f) != 5 {
			return nil, fmt.Errorf("line %d has %d fields, not 5: %s", i+1, len(f), line)
		}
		if strings.TrimSpace(f[0]) == "Account" {
			continue
		}
		account := strings.TrimLeft(f[0], " ")
		s := shareLine{account: strings.TrimSpace(account), user: strings.TrimSpace(f[1]), depth: len(f[0]) - len(account)}
		s.under = s.user != ""
		var err error
		if raw := strings.TrimSpace(f[2]); raw != "" {
			if s.shares, err = strconv.ParseFloat(raw, 64); err != nil {
				return nil, fmt.Errorf("line %d: raw shares are %q; shares that are the parent's are not simulated", i+1, raw)
			}
		}
		if s.usage, err = strconv.ParseFloat(strings.TrimSpace(f[3]), 64); err != nil {
			return nil, fmt.Errorf("line %d: raw usage is %q", i+1, f[3])
		}
		if s.under {
			if s.printed, err = strconv.ParseFloat(strings.TrimSpace(f[4]), 64); err != nil {
				return nil, fmt.Errorf("line %d: the fair-share factor is %q", i+1, f[4])
			}
		}
		out = append(out, s)
	}
	return out, nil
}

type sharedUser struct {
	assoc   *fairshare.Association
	printed float64
}

// buildTree makes the association tree; accounts are children of the last account that is indented less.
func buildTree(lines []shareLine) (*fairshare.Tree, map[[2]string]sharedUser, error) {
	t, users := fairshare.NewTree(), map[[2]string]sharedUser{}
	var path []shareLine
	for _, l := range lines {
		if l.under {
			a, err := t.User(l.user, l.account, l.shares)
			if err != nil {
				return nil, nil, err
			}
			a.Usage = l.usage
			users[[2]string{l.account, l.user}] = sharedUser{a, l.printed}
			continue
		}
		for len(path) > 0 && path[len(path)-1].depth >= l.depth {
			path = path[:len(path)-1]
		}
		if l.account == "root" {
			t.Root().Usage = l.usage
		} else {
			parent := ""
			if len(path) > 0 {
				parent = path[len(path)-1].account
			}
			a, err := t.Account(l.account, parent, l.shares)
			if err != nil {
				return nil, nil, err
			}
			a.Usage = l.usage
		}
		path = append(path, l)
	}
	return t, users, nil
}
