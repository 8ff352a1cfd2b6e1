package egress

import (
	"context"
	"os"
	"os/exec"
	"testing"
)

var in = Inside{Node: "10.245.0.1", Pods: "10.244.0.0/16", Services: "10.96.0.0/16"}

// The test binary stands for the box command when Prove runs it again.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == ProofCommand {
		if err := ProveHere(context.Background(), os.Args[2]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTheCounterCounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	if _, err := exec.LookPath("/usr/sbin/nft"); err != nil {
		t.Skip("needs nftables")
	}
	if err := Prove(t.Context(), os.Args[0], in); err != nil {
		t.Fatal(err)
	}
}

func TestProofRefusesANetworkInUse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.Command(os.Args[0], ProofCommand, `{}`)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("ran in the machine's own network namespace: %s", out)
	}
}

func TestParse(t *testing.T) {
	c, err := parse([]byte(`{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"counter": {"family": "inet", "packets": 3, "bytes": 87}}]}`))
	if err != nil || c != (Counter{3, 87}) {
		t.Errorf("got %v, %v", c, err)
	}
	if _, err := parse([]byte(`{"nftables": []}`)); err == nil {
		t.Error("no counter in the answer, and no error")
	}
}
