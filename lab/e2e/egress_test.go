package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Nothing in the box has tried to leave the machine, and the counter that says so counts.
func TestEgress(t *testing.T) {
	r := begin(t, 2*time.Minute)
	if err := r.box.ProveEgress(r.ctx); err != nil {
		t.Fatal(err)
	}
	counter, err := r.box.Egress(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if counter.Packets != 0 {
		t.Errorf("%d packets (%d bytes) were sent to addresses outside of the box since it started", counter.Packets, counter.Bytes)
	}
}

// TestMain puts back the site that the tests found, and reads the counter once more when all of them are done, so that none has made
// anything dial out.
func TestMain(m *testing.M) {
	status := m.Run()
	if opened.putBack != nil {
		ctx, cancel := longAftermath()
		defer cancel()
		if err := opened.putBack(ctx); err != nil {
			fmt.Printf("FAIL: put back the site that the tests found: %v\n", err)
			status = 1
		}
	}
	if opened.box != nil {
		ctx, cancel := aftermath()
		defer cancel()
		counter, err := opened.box.Egress(ctx)
		switch {
		case opened.down:
		case err != nil:
			fmt.Printf("FAIL: the counter of packets to the outside cannot be read: %v\n", err)
			status = 1
		case counter.Packets != 0:
			fmt.Printf("FAIL: %d packets were sent to addresses outside of the box since it started\n", counter.Packets)
			status = 1
		}
	}
	os.Exit(status)
}
