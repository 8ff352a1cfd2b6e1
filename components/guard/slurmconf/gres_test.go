package slurmconf

import (
	"strings"
	"testing"
)

func TestChangesOfGresConfAlone(t *testing.T) {
	const conf = "NodeName=g[0-1] CPUs=2 Gres=gpu:1\nNodeName=c0 CPUs=2\nPartitionName=p Nodes=ALL\n"
	const gres = "AutoDetect=off\nNodeName=g[0-1] Name=gpu Type=a File=/dev/nvidia0\n"
	for name, test := range map[string]struct{ conf, gres, want string }{
		"nothing":                              {conf, gres, ""},
		"comments and the order of words":      {conf, "# cards\nAutoDetect=off\nNodeName=g0,g1 file=/dev/nvidia0 Name=gpu Type=a\n", ""},
		"another device on one node":           {conf, strings.Replace(gres, "g[0-1] Name=gpu Type=a File=/dev/nvidia0", "g0 Name=gpu Type=a File=/dev/nvidia0\nNodeName=g1 Name=gpu Type=a File=/dev/nvidia1", 1), "g1"},
		"the type goes":                        {conf, strings.Replace(gres, " Type=a", "", 1), "g0 g1"},
		"a line for all nodes":                 {conf, strings.Replace(gres, "off", "nvml", 1), "g0 g1"},
		"the lines of a node go":               {conf, strings.Replace(gres, "g[0-1]", "g0", 1), "g1"},
		"the file goes":                        {conf, "", "g0 g1"},
		"cards for a node that has none":       {conf, gres + "NodeName=c0 Name=gpu File=/dev/nvidia0\n", ""},
		"slurm.conf changes the same node too": {strings.Replace(conf, "gpu:1", "gpu:2", 1), strings.Replace(gres, "nvidia0", "nvidia[0-1]", 1), "g0 g1"},
	} {
		t.Run(name, func(t *testing.T) {
			from, err := Read(map[string]string{"slurm.conf": conf, "gres.conf": gres})
			if err != nil {
				t.Fatal(err)
			}
			to, err := Read(map[string]string{"slurm.conf": test.conf, "gres.conf": test.gres})
			if err != nil {
				t.Fatal(err)
			}
			dangers, err := Dangers(from, to)
			if err != nil || len(dangers) > 1 {
				t.Fatalf("%v %v", dangers, err)
			}
			got := ""
			if len(dangers) == 1 {
				got = strings.Join(dangers[0].Nodes, " ")
			}
			if got != test.want {
				t.Errorf("in danger %q, want %q", got, test.want)
			}
		})
	}
	if _, err := Read(map[string]string{"slurm.conf": conf, "gres.conf": "NodeName=g0 Name\n"}); err == nil || !strings.HasPrefix(err.Error(), "gres.conf:1:") {
		t.Errorf("error %v names no line", err)
	}
}
