package load_test

import (
	"strings"
	"testing"

	"github.com/berth-hpc/berth/renderer/load"
)

// What somebody writes who comes from YAML is told with what to write instead, once.
func TestQuotesAndCommas(t *testing.T) {
	for text, want := range map[string]string{
		`lab: pools: cpu: idle: 5m`:                       `lab.cue:20:25: missing ',' in struct literal; text is written in quotes: "5m"`,
		`lab: users: ann: account: vision`:                `lab.cue:20:27: lab.users.ann.account: reference "vision" not found; if it is text, write it in quotes: "vision"`,
		`lab: pools: gpu-a: {max: 1}`:                     `lab.cue:20:18: missing ',' in struct literal; a name with other characters than letters, digits and _ is written in quotes: "gpu-a"`,
		`lab: pools: a: {max: 1, memory: 1GB}`:            `lab.cue:20:35: missing ',' in struct literal; text is written in quotes: "1GB"`,
		`lab: slurm: partitions: p: {maxTime: 1:00:00}`:   `lab.cue:20:39: missing ',' in struct literal; text is written in quotes: "1:00:00"`,
		`lab: hosts: b: {address: 192.168.0.104, cpus:1}`: `lab.cue:20:33: missing ',' in struct literal; text is written in quotes: "192.168.0.104"`,
		`lab: monitoring: enabled: yes`:                   `lab.cue:20:27: lab.monitoring.enabled: reference "yes" not found; write true`,
		`lab: monitoring: enabled: False`:                 `lab.cue:20:27: lab.monitoring.enabled: reference "False" not found; write false`,
		`lab: pools: a: {max: 1 cpus: 1}`:                 `lab.cue:20:24: missing ',' in struct literal; write a comma between two fields, and a colon between a field and its value`,
		`lab: pools: a: {max 1}`:                          `lab.cue:20:21: expected label or ':', found 'INT' 1; write a comma between two fields, and a colon between a field and its value`,
		`lab: pools: a: max = 1`:                          `lab.cue:20:16: lab.pools: unreferenced alias or let clause max; a field is written with a colon: max: …`,
		`- lab: x`:                                        `lab.cue:20:6: missing ',' in struct literal; a list is written in [], with commas between its elements`,
		`lab: timeZone: Europe/Berlin`:                    `lab.cue:20:16: lab.timeZone: reference "Europe" not found; if it is text, write it in quotes: "Europe/Berlin"`,
		`lab: pools: cpu: partition: maxTime: 90`:         `lab.cue:20:38: lab.pools.cpu.partition.maxTime: not a time limit; write Slurm's form (90 for minutes, 1:00:00, 2-12:00:00, UNLIMITED) or a Go duration (15m, 1h30m, 7d); write it in quotes: "90"`,
		`lab: pools: cpu: ulimits: stack: 4Gi`:            `lab.cue:20:34: lab.pools.cpu.ulimits.stack: not a size of a stack; write unlimited, or a size such as 64Mi; write it in quotes: "4Gi"`,
		`lab: pools: cpu: ulimits: stack: '4Gi'`:          `lab.cue:20:34: lab.pools.cpu.ulimits.stack: not a size of a stack; write unlimited, or a size such as 64Mi; write it in double quotes: "4Gi"`,
		`lab: pools: cpu: ulimits: stack: 4`:              `lab.cue:20:34: lab.pools.cpu.ulimits.stack: not a size of a stack; write unlimited, or a size such as 64Mi; it is text, so it stands in quotes`,
	} {
		dir := repository(t, map[string]string{"lab.cue": smallest("lab") + "\n" + text + "\n"})
		if _, err := load.Load(dir); err == nil || err.Error() != dir+"/"+want {
			t.Errorf("%s\nsaid %v\nwant %s", text, strings.TrimPrefix(err.Error(), dir+"/"), want)
		}
	}
}
