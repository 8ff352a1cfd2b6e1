// Package hostlist reads and writes Slurm's lists of node names, such as "slurm-worker-cpu-[0-3,7],login-0".
package hostlist

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// maxNames bounds what one list may expand to; Slurm's own limit is 64 Ki.
const maxNames = 65536

// Expand returns the names of a list in its order. It keeps leading zeros ([01-10]) and expands several brackets in one
// name, as Slurm does.
func Expand(list string) ([]string, error) {
	var names []string
	for _, part := range split(list) {
		if part == "" {
			continue
		}
		expanded, err := expandOne(part)
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", list, err)
		}
		if names = append(names, expanded...); len(names) > maxNames {
			return nil, fmt.Errorf("host list %q: more than %d names", list, maxNames)
		}
	}
	return names, nil
}

// split cuts a list at the commas outside of brackets.
func split(list string) []string {
	var parts []string
	depth, start := 0, 0
	for i, r := range list {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(list[start:i]))
				start = i + 1
			}
		}
	}
	return append(parts, strings.TrimSpace(list[start:]))
}

func expandOne(name string) ([]string, error) {
	before, rest, found := strings.Cut(name, "[")
	if !found {
		if strings.ContainsAny(name, "]") {
			return nil, fmt.Errorf("%q has a ] without a [", name)
		}
		return []string{name}, nil
	}
	ranges, after, found := strings.Cut(rest, "]")
	if !found {
		return nil, fmt.Errorf("%q has a [ without a ]", name)
	}
	tails, err := expandOne(after)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, span := range strings.Split(ranges, ",") {
		low, high, width, err := parseSpan(span)
		if err != nil {
			return nil, err
		}
		if (high-low+1)*len(tails)+len(names) > maxNames {
			return nil, fmt.Errorf("more than %d names", maxNames)
		}
		for i := low; i <= high; i++ {
			for _, tail := range tails {
				names = append(names, fmt.Sprintf("%s%0*d%s", before, width, i, tail))
			}
		}
	}
	return names, nil
}

func parseSpan(span string) (low, high, width int, err error) {
	first, last, isRange := strings.Cut(strings.TrimSpace(span), "-")
	if !isRange {
		last = first
	}
	low, errLow := strconv.Atoi(first)
	high, errHigh := strconv.Atoi(last)
	if errLow != nil || errHigh != nil || low < 0 || high < low || high-low >= maxNames || strings.HasPrefix(last, "+") || strings.HasPrefix(first, "+") {
		return 0, 0, 0, fmt.Errorf("%q is no range of numbers", span)
	}
	if len(first) > 9 {
		return 0, 0, 0, fmt.Errorf("%q is too long", span)
	}
	return low, high, len(first), nil
}

// Compress writes names as a list: runs of numbers of one prefix in brackets, sorted. It loses no name and invents none.
func Compress(names []string) string {
	type group struct {
		prefix string
		width  int
	}
	numbers := map[group][]int{}
	var plain []string
	for _, name := range names {
		digits := len(name)
		for digits > 0 && name[digits-1] >= '0' && name[digits-1] <= '9' {
			digits--
		}
		suffix := name[digits:]
		number, err := strconv.Atoi(suffix)
		if suffix == "" || len(suffix) > 9 || err != nil {
			plain = append(plain, name)
			continue
		}
		key := group{name[:digits], 1}
		if suffix[0] == '0' && len(suffix) > 1 {
			key.width = len(suffix)
		}
		numbers[key] = append(numbers[key], number)
	}
	parts := plain
	for key, values := range numbers {
		parts = append(parts, key.prefix+spans(values, key.width))
	}
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

func spans(values []int, width int) string {
	sort.Ints(values)
	var out []string
	for i := 0; i < len(values); {
		j := i
		for j+1 < len(values) && values[j+1] <= values[j]+1 {
			j++
		}
		if values[i] == values[j] {
			out = append(out, fmt.Sprintf("%0*d", width, values[i]))
		} else {
			out = append(out, fmt.Sprintf("%0*d-%0*d", width, values[i], width, values[j]))
		}
		i = j + 1
	}
	if len(out) == 1 && !strings.Contains(out[0], "-") {
		return out[0]
	}
	return "[" + strings.Join(out, ",") + "]"
}
