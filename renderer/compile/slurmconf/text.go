package slurmconf

import (
	"fmt"
	"strings"
)

// parameter is one Key=Value of slurm.conf.
type parameter struct{ key, value string }

// section is a group of parameters under one comment line.
type section struct {
	comment    string
	parameters []parameter
}

// line is one Key=Value Key=Value… line, as nodes and partitions have.
type line []parameter

func (l *line) add(key, value string) {
	if value != "" {
		*l = append(*l, parameter{key, value})
	}
}

func (l line) String() string {
	words := make([]string, len(l))
	for i, p := range l {
		words[i] = p.key + "=" + p.value
	}
	return strings.Join(words, " ")
}

// checkText refuses what would end or comment out a line of slurm.conf: a value from a site never makes a second line.
func checkText(field, value string) error {
	if i := strings.IndexAny(value, "\n\r#\x00"); i >= 0 {
		return fmt.Errorf("%s: %q holds %q, which would end the line in slurm.conf; leave it out", field, value, value[i])
	}
	return nil
}

// checkWord is checkText for values that stand unquoted between others on a line.
func checkWord(field, value string) error {
	if strings.ContainsAny(value, " \t\"'") {
		return fmt.Errorf("%s: %q holds a blank or a quote, which would split the line in slurm.conf; leave it out", field, value)
	}
	return checkText(field, value)
}

func writeSections(b *strings.Builder, sections []section) {
	for _, s := range sections {
		if len(s.parameters) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n# %s\n", s.comment)
		for _, p := range s.parameters {
			fmt.Fprintf(b, "%s=%s\n", p.key, p.value)
		}
	}
}
