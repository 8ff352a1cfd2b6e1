package slurmrest_test

import (
	"fmt"
	"testing"

	"github.com/berth-hpc/berth/components/slurmrest"
)

func TestGRES(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "[]"},
		{"(null)", "[]"},
		{"gpu", "[{gpu  1}]"},
		{"gpu:2", "[{gpu  2}]"},
		{"gpu:rtx4070", "[{gpu rtx4070 1}]"},
		{"gpu:rtx4070:1,mps:rtx4070:100", "[{gpu rtx4070 1} {mps rtx4070 100}]"},
		{"gpu:rtx4070:0(IDX:N/A),mps:rtx4070:25(25/100)", "[{gpu rtx4070 0} {mps rtx4070 25}]"},
		{"gpu:a:2(IDX:0,3),shard:a:4(1/4,3/4)", "[{gpu a 2} {shard a 4}]"},
		{"craynetwork:4K", "[{craynetwork  4096}]"},
	} {
		got, err := slurmrest.ParseGRES(test.text)
		if err != nil || fmt.Sprint(got) != test.want {
			t.Errorf("%q: %v, %v, want %s", test.text, got, err, test.want)
		}
	}
	for _, bad := range []string{":", "gpu:a:b", "gpu:a:1:2", ",", "gpu:a:-1", ":a:1"} {
		if got, err := slurmrest.ParseGRES(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func FuzzParseGRES(f *testing.F) {
	for _, seed := range []string{"gpu:rtx4070:1,mps:rtx4070:100", "gpu:rtx4070:0(IDX:N/A)", "(null)", "gpu:a:2(IDX:0,3),x:4K"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := slurmrest.ParseGRES(text)
		for _, gres := range all {
			if err != nil || gres.Name == "" || gres.Count < 0 {
				t.Fatalf("%q: %+v, %v", text, gres, err)
			}
		}
	})
}
