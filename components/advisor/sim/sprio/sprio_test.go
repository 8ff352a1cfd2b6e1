package sprio

import (
	"strings"
	"testing"
)

// capture is made by hand in the form in which Slurm 24.11 prints: 4 nodes of 8 CPUs, accounts vision (2 shares, used) and language
// (1 share), one partition. Worked by hand:
//
// Level fair share of vision is (2/4)/(6000/8000) = 0.667, of language (1/4)/(2000/8000) = 1, of root's own user infinite: the order
// of users is root, researcher, then in vision second (no usage), student, which with four users are the factors 1, 3/4, 1/2, 1/4.
// Job 7 (student, 8 CPUs on 1 node): fair share 2500, size ((4−1)/4 + (32−8)/32)/2 · 1000 = 750, partition 1000, QOS normal 0 of
// 10, no age yet, nice 100. Job 8 (researcher, 16 CPUs on 2 nodes, QOS high): 7500, 500, 1000, 5000, and a site factor of 50.
func capture() Capture {
	return Capture{
		"config": "Configuration data as of 2026-12-02T05:00:00\nPriorityCalcPeriod      = 00:05:00\nPriorityFavorSmall      = Yes\nPriorityFlags           = \n" +
			"PriorityMaxAge          = 7-00:00:00\nPriorityType            = priority/multifactor\nPriorityWeightAge       = 1000\nPriorityWeightAssoc     = 0\n" +
			"PriorityWeightFairShare = 10000\nPriorityWeightJobSize   = 1000\nPriorityWeightPartition = 1000\nPriorityWeightQOS       = 5000\nPriorityWeightTRES      = (null)\n",
		"nodes":      "NodeName=w-0 CoresPerSocket=8 CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00\nNodeName=w-1 CPUTot=8\nNodeName=w-2 CPUTot=8\nNodeName=w-3 CPUTot=8\n",
		"partitions": "PartitionName=cpu AllowGroups=ALL PriorityJobFactor=1 PriorityTier=1 State=DOWN\n",
		"qos":        "normal|0\nhigh|10\n",
		"shares": "Account|User|RawShares|RawUsage|FairShare\nroot|||8000|\n root|root|1|0|1.000000\n language||1|2000|\n  language|researcher|1|2000|0.750000\n" +
			" vision||2|6000|\n  vision|second|1|0|0.500000\n  vision|student|1|6000|0.250000\n",
		"jobs":       "7|student|vision|cpu|normal|8|1|1000000\n8|researcher|language|cpu|high|16|2|1000000\n",
		"priorities": "7|0|0|2500|750|1000|0|0|100|4150\n8|0|0|7500|500|1000|5000|50|0|14050\n",
		"now":        "1000060\n",
	}
}

func TestCheck(t *testing.T) {
	c := capture()
	r, err := Check(c)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Agrees() || len(r.Rows) != 2 || r.Shares != 4 {
		t.Errorf("%+v", r)
	}
	for what, change := range map[string][2]string{
		"fair share": {"7|0|0|2500|", "7|0|0|5000|"},
		"job size":   {"|2500|750|", "|2500|700|"},
		"age":        {"7|0|", "7|9|"},
		"priority":   {"|4150", "|4140"},
		"QOS":        {"|5000|50|", "|4000|50|"},
		"partition":  {"|750|1000|", "|750|500|"},
	} {
		c := capture()
		c["priorities"] = strings.Replace(c["priorities"], change[0], change[1], 1)
		r, err := Check(c)
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		for _, row := range r.Rows {
			found += strings.Join(row.Differs, ",")
		}
		if r.Agrees() || !strings.Contains(found, what) {
			t.Errorf("a wrong %s is reported as %q", what, found)
		}
	}
	c = capture()
	c["shares"] = strings.Replace(c["shares"], "0.250000", "0.500000", 1)
	if r, err := Check(c); err != nil || len(r.SharesDiffer) != 1 || !strings.Contains(r.SharesDiffer[0], "student in vision") {
		t.Errorf("a wrong factor: %+v, %v", r, err)
	}
}

func TestCheckErrors(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"config", "priority/multifactor", "priority/basic", "only priority/multifactor has factors"},
		{"config", "(null)", "cpu=100", "TRES factors are not compared"},
		{"jobs", "7|student", "9|student", "job 7 is not among the pending jobs"},
		{"shares", "|student|1|", "|student|parent|", "shares that are the parent's are not simulated"},
		{"nodes", "CPUTot=8", "CPUTot=", "node w-0: CPUTot"},
		{"priorities", "7|0|0|2500", "7|0|2500", "line 1 has 9 fields, not 10"},
		{"now", "1000060", "soon", `now: "soon" is not a number`},
	} {
		k := capture()
		k[c.name] = strings.Replace(k[c.name], c.old, c.new, 1)
		if _, err := Check(k); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	k := capture()
	k["qos"] = ""
	if _, err := Check(k); err == nil || !strings.Contains(err.Error(), "sacctmgr") {
		t.Errorf("an empty capture: %v", err)
	}
}
