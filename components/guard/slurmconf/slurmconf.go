// Package slurmconf reads as much of slurm.conf and gres.conf as is needed to say which running jobs a change would kill, and to rewrite
// a configuration for a trial. It checks nothing that slurmctld checks itself.
package slurmconf

import (
	"bufio"
	"fmt"
	"maps"
	"strings"

	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

// Config is a slurm.conf.
type Config struct {
	// Settings are the single parameters, by name in lower case (Slurm does not tell cases apart).
	Settings map[string]string
	// Nodes are the nodes' attributes, by node name; attribute names are in lower case.
	Nodes map[string]map[string]string
	// Partitions are the partitions' attributes, by partition name. Slurm tells the case of partition names apart.
	Partitions map[string]map[string]string
	// Gres is what gres.conf says of each node, its words in order; nil without Read.
	Gres map[string]string
}

// Parse reads a slurm.conf. Lines that it does not understand are errors: a change that cannot be judged is not applied.
func Parse(text string) (*Config, error) {
	config := &Config{Settings: map[string]string{}, Nodes: map[string]map[string]string{}, Partitions: map[string]map[string]string{}}
	nodeDefaults, partitionDefaults := map[string]string{}, map[string]string{}
	for _, line := range Lines(text) {
		fields, err := fieldsOf(line.Text)
		if err != nil {
			return nil, fmt.Errorf("slurm.conf:%d: %w", line.Number, err)
		}
		if len(fields) == 0 {
			continue
		}
		switch key := strings.ToLower(fields[0].key); key {
		case "include":
			return nil, fmt.Errorf("slurm.conf:%d: Include cannot be judged; put the lines into slurm.conf itself", line.Number)
		case "nodename":
			err = config.addNodes(fields, nodeDefaults)
		case "partitionname":
			err = config.addPartitions(fields, partitionDefaults)
		case "nodeset", "downnodes", "switchname": // they stand for nodes that are defined elsewhere
		default:
			for _, field := range fields {
				config.Settings[strings.ToLower(field.key)] = field.value
			}
		}
		if err != nil {
			return nil, fmt.Errorf("slurm.conf:%d: %w", line.Number, err)
		}
	}
	return config, nil
}

func (c *Config) addNodes(fields []field, defaults map[string]string) error {
	attributes := attributesOf(fields[1:])
	if strings.EqualFold(fields[0].value, "DEFAULT") {
		maps.Copy(defaults, attributes)
		return nil
	}
	names, err := hostlist.Expand(fields[0].value)
	if err != nil {
		return err
	}
	for _, name := range names {
		node := maps.Clone(defaults)
		maps.Copy(node, attributes)
		c.Nodes[name] = node
	}
	return nil
}

func (c *Config) addPartitions(fields []field, defaults map[string]string) error {
	attributes := attributesOf(fields[1:])
	if strings.EqualFold(fields[0].value, "DEFAULT") {
		maps.Copy(defaults, attributes)
		return nil
	}
	for _, name := range strings.Split(fields[0].value, ",") {
		partition := maps.Clone(defaults)
		maps.Copy(partition, attributes)
		c.Partitions[name] = partition
	}
	return nil
}

// PartitionNodes returns the names of a partition's nodes; ALL stands for every node.
func (c *Config) PartitionNodes(partition string) ([]string, error) {
	list := c.Partitions[partition]["nodes"]
	if strings.EqualFold(list, "ALL") {
		names := make([]string, 0, len(c.Nodes))
		for name := range c.Nodes {
			names = append(names, name)
		}
		return names, nil
	}
	return hostlist.Expand(list)
}

// Line is one logical line: comments are off, and continued lines are joined.
type Line struct {
	// Number is where it begins, from 1.
	Number int
	Text   string
}

// Lines cuts a file into its logical lines; empty ones are left out. A # begins a comment unless a backslash is before
// it, and a backslash at the end continues the line.
func Lines(text string) []Line {
	var lines []Line
	var held strings.Builder
	start, number := 1, 0
	scanner := bufio.NewScanner(strings.NewReader(text))
	scanner.Buffer(nil, len(text)+1)
	for scanner.Scan() {
		number++
		if held.Len() == 0 {
			start = number
		}
		line := uncomment(scanner.Text())
		if body, continued := strings.CutSuffix(line, `\`); continued {
			held.WriteString(body)
			continue
		}
		held.WriteString(line)
		if whole := strings.TrimSpace(held.String()); whole != "" {
			lines = append(lines, Line{start, whole})
		}
		held.Reset()
	}
	if whole := strings.TrimSpace(held.String()); whole != "" {
		lines = append(lines, Line{start, whole})
	}
	return lines
}

func uncomment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] != '\\') {
			return strings.TrimRight(line[:i], " \t\r")
		}
	}
	return strings.TrimRight(line, " \t\r")
}

type field struct{ key, value string }

// fieldsOf cuts a line into Key=Value pairs; values may be quoted.
func fieldsOf(line string) ([]field, error) {
	var fields []field
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		end := strings.IndexAny(rest, "= \t")
		if end < 0 {
			return nil, fmt.Errorf("%q is no Key=Value", rest)
		}
		key := strings.TrimRight(rest[:end], "+-*/") // Key+=Value appends
		rest = strings.TrimLeft(rest[end:], " \t")
		if strings.EqualFold(key, "include") {
			return append(fields, field{key, rest}), nil
		}
		if !strings.HasPrefix(rest, "=") || key == "" {
			return nil, fmt.Errorf("%q is no Key=Value", line)
		}
		rest = strings.TrimLeft(rest[1:], " \t")
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			var closed bool
			if value, rest, closed = strings.Cut(quoted, `"`); !closed {
				return nil, fmt.Errorf("the value of %s has no closing quote", key)
			}
		} else if end := strings.IndexAny(rest, " \t"); end >= 0 {
			value, rest = rest[:end], rest[end:]
		} else {
			value, rest = rest, ""
		}
		fields = append(fields, field{key, value})
	}
	return fields, nil
}

func attributesOf(fields []field) map[string]string {
	attributes := make(map[string]string, len(fields))
	for _, field := range fields {
		attributes[strings.ToLower(field.key)] = field.value
	}
	return attributes
}
