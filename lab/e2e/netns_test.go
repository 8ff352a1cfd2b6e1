package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A listener made in another network namespace is reached from there and from nowhere else.
func TestPlaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// Prints a line once its loopback is up, and lives as long as the test.
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 60")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	inside := place{name: "inside", netns: fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid), address: "127.0.0.1"}
	outside := place{name: "outside", netns: "/proc/self/ns/net", address: "127.0.0.1"}
	const port = 18453
	if inside.reaches(ctx, "127.0.0.1", port, time.Second) {
		t.Fatal("the port is open before anybody listens")
	}
	stop, err := inside.listen([]int{port, port})
	if err != nil {
		t.Fatal(err)
	}
	if !inside.reaches(ctx, "127.0.0.1", port, time.Second) {
		t.Error("the listener is not reached from its own namespace")
	}
	if outside.reaches(ctx, "127.0.0.1", port, time.Second) {
		t.Error("the listener is reached from another namespace")
	}
	stop()
	if inside.reaches(ctx, "127.0.0.1", port, time.Second) {
		t.Error("the port is open after it was closed")
	}
}
