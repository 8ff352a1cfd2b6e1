package slurmconf

import (
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

var numbered = regexp.MustCompile(`^(.*?)(0|[1-9][0-9]{0,8})$`)

// Hostlist writes node names in Slurm's compressed form: names that share a prefix become one prefix with ranges, and the
// order of the result depends on the names alone. "c2", "c0", "c1", "login" becomes "c[0-2],login". Duplicates count once.
func Hostlist(names []string) string {
	byPrefix := map[string][]int{}
	var plain []string
	for _, name := range names {
		match := numbered.FindStringSubmatch(name)
		if match == nil {
			plain = append(plain, name)
			continue
		}
		n, err := strconv.Atoi(match[2])
		if err != nil {
			plain = append(plain, name)
			continue
		}
		byPrefix[match[1]] = append(byPrefix[match[1]], n)
	}
	var parts []string
	for prefix, indices := range byPrefix {
		ranges := compress(indices)
		if len(ranges) == 1 && !strings.Contains(ranges[0], "-") {
			parts = append(parts, prefix+ranges[0])
			continue
		}
		parts = append(parts, fmt.Sprintf("%s[%s]", prefix, strings.Join(ranges, ",")))
	}
	parts = append(parts, plain...)
	sort.Strings(parts)
	return strings.Join(dedupe(parts), ",")
}

func compress(indices []int) []string {
	sort.Ints(indices)
	var ranges []string
	for i := 0; i < len(indices); {
		j := i
		for j+1 < len(indices) && indices[j+1] <= indices[j]+1 {
			j++
		}
		if indices[i] == indices[j] {
			ranges = append(ranges, strconv.Itoa(indices[i]))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d-%d", indices[i], indices[j]))
		}
		i = j + 1
	}
	return ranges
}

func dedupe(sorted []string) []string {
	var out []string
	for i, s := range sorted {
		if i == 0 || s != sorted[i-1] {
			out = append(out, s)
		}
	}
	return out
}
