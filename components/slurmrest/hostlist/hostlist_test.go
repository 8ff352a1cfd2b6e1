package hostlist_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"":                               "",
		"login-0":                        "login-0",
		"slurm-worker-cpu-[0-2]":         "slurm-worker-cpu-0 slurm-worker-cpu-1 slurm-worker-cpu-2",
		"a-[0,2-3],b-1":                  "a-0 a-2 a-3 b-1",
		"n[08-11]":                       "n08 n09 n10 n11",
		"r[0-1]n[0-1]":                   "r0n0 r0n1 r1n0 r1n1",
		"slurm-worker-gpu-rtx4070-[0-0]": "slurm-worker-gpu-rtx4070-0",
	} {
		names, err := hostlist.Expand(list)
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("%q: %v, %v; want %s", list, names, err, want)
		}
	}
	for _, bad := range []string{"a[", "a]", "a[1-", "a[x]", "a[3-1]", "a[-1]", "a[0-99999999]", "a[0-300]b[0-300]"} {
		if names, err := hostlist.Expand(bad); err == nil {
			t.Errorf("%q expands to %d names", bad, len(names))
		}
	}
}

func TestCompressLosesNothing(t *testing.T) {
	if got := hostlist.Compress([]string{"cpu-3", "cpu-0", "cpu-1", "gpu-0", "login"}); got != "cpu-[0-1,3],gpu-0,login" {
		t.Error(got)
	}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.StringMatching(`(cpu|gpu)-([0-9]|0[0-9]|[1-9][0-9])`), rapid.ID[string]).Draw(t, "names")
		back, err := hostlist.Expand(hostlist.Compress(names))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		slices.Sort(back)
		if !slices.Equal(names, back) {
			t.Fatalf("%v became %v", names, back)
		}
	})
}

func FuzzExpand(f *testing.F) {
	f.Add("a[0-3,7]b[1],c")
	f.Fuzz(func(_ *testing.T, list string) { _, _ = hostlist.Expand(list) })
}
