package slurmconf

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

// Read reads a configuration's slurm.conf and gres.conf, file name to text.
func Read(files map[string]string) (*Config, error) {
	config, err := Parse(files["slurm.conf"])
	if err != nil {
		return nil, err
	}
	return config, config.readGres(files["gres.conf"])
}

// readGres gives each node the lines of gres.conf that are about it, in their order, and those about all nodes.
func (c *Config) readGres(text string) error {
	lines := map[string][]string{}
	for _, line := range Lines(text) {
		fields, err := fieldsOf(line.Text)
		if err != nil {
			return fmt.Errorf("gres.conf:%d: %w", line.Number, err)
		}
		names := slices.Collect(maps.Keys(c.Nodes))
		if strings.EqualFold(fields[0].key, "nodename") {
			if names, err = hostlist.Expand(fields[0].value); err != nil {
				return fmt.Errorf("gres.conf:%d: %w", line.Number, err)
			}
			fields = fields[1:]
		}
		attributes := attributesOf(fields)
		var words []string
		for _, key := range slices.Sorted(maps.Keys(attributes)) {
			words = append(words, key+"="+attributes[key])
		}
		for _, name := range names {
			lines[name] = append(lines[name], strings.Join(words, " "))
		}
	}
	c.Gres = map[string]string{}
	for name, of := range lines {
		c.Gres[name] = strings.Join(of, "; ")
	}
	return nil
}

// gresDanger is what a change of gres.conf alone does: the nodes whose cards it describes otherwise would hand their jobs'
// cards to others, or be drained for a lower count. Nodes without cards in either slurm.conf have nothing to lose, and those
// whose count or type changes there are a danger already.
func gresDanger(from, to *Config) []Danger {
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(from.Nodes)) {
		after, stays := to.Nodes[name]
		before := from.Nodes[name]["gres"]
		if stays && before != "" && strings.EqualFold(before, after["gres"]) && from.Gres[name] != to.Gres[name] {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return []Danger{{What: "gres.conf describes the cards of nodes otherwise", Nodes: changed}}
}
