package e2e

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// After `make down` the machine is as if there had been no box. This ends the box, so it runs only when asked for
// (lab/e2e.sh runs it last), and it looks by itself, not with what the box says of itself.
func TestDown(t *testing.T) {
	if os.Getenv("BERTH_E2E_DOWN") != "1" {
		t.Skip("ends the box: set BERTH_E2E_DOWN=1")
	}
	r := begin(t, 5*time.Minute)
	first := filepath.Dir(filepath.Dir(r.node().netns)) // /proc/<pid> of the box's first process
	namespaces := map[string]string{}
	for _, kind := range []string{"mnt", "net", "pid", "uts", "ipc"} {
		id, err := os.Readlink(filepath.Join(first, "ns", kind))
		if err != nil {
			t.Fatal(err)
		}
		if own, _ := os.Readlink("/proc/self/ns/" + kind); own == id {
			t.Fatalf("the box has no %s namespace of its own: nothing ends with it", kind)
		}
		namespaces[id] = kind
	}
	// Namespaces of pods are the box's too.
	for _, p := range append(r.pods(platform, ""), r.pods("kube-system", "")...) {
		if p.serving() {
			if id, err := os.Readlink(r.placeOf(p.Metadata.Name, p).netns); err == nil {
				namespaces[id] = "pod's net"
			}
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	down := exec.CommandContext(ctx, filepath.Join(r.box.Source, "bin", "box"), "down")
	down.Dir = r.box.Source
	out, err := down.CombinedOutput()
	opened.down = true
	if err != nil {
		t.Errorf("box down: %v\n%s", err, out)
	}

	for _, p := range processes(t) {
		if p.zombie {
			continue
		}
		for _, id := range p.namespaces {
			if kind := namespaces[id]; kind != "" {
				t.Errorf("process %s lives in the box's %s namespace: %s", p.pid, kind, p.command)
			}
		}
		if strings.Contains(p.groups, "/kubepods/") || strings.Contains(p.groups, "/berth-lab") {
			t.Errorf("process %s is in a control group of the box: %s", p.pid, p.command)
		}
	}
	for _, line := range fileLines(t, "/proc/self/mountinfo") {
		if strings.Contains(line, r.box.Dir+"/") || strings.Contains(line, "/kubelet/") || strings.Contains(line, "containerd") && strings.Contains(line, "overlay") {
			t.Errorf("mounted: %s", line)
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		for _, prefix := range []string{"veth", "cni", "pods", "node", "kube-"} {
			if strings.HasPrefix(i.Name, prefix) {
				t.Errorf("network device %s", i.Name)
			}
		}
	}
	for _, argv := range [][]string{{"nft", "list", "ruleset"}, {"iptables-save"}, {"ipset", "list", "-name"}} {
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
		if err != nil {
			continue // without the program there are no such rules
		}
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, "KUBE") || strings.Contains(line, "kube-") || strings.Contains(line, "berth") {
				t.Errorf("%s: %s", argv[0], line)
			}
		}
	}
	for _, port := range []string{r.box.APIPort, r.box.GitPort} {
		if c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second); err == nil {
			c.Close()
			t.Errorf("something listens on 127.0.0.1:%s", port)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/berth-lab")
	if err != nil {
		t.Fatal(err)
	}
	if top := "/sys/fs/cgroup/berth-lab"; exists(top) {
		groups = append(groups, top)
	}
	for _, g := range groups {
		t.Errorf("control group %s", g)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

type process struct {
	pid, command, groups string
	namespaces           []string
	zombie               bool
}

// processes lists what runs on the machine.
func processes(t *testing.T) []process {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var all []process
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			continue // ended meanwhile
		}
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		p := process{
			pid: e.Name(), command: strings.ReplaceAll(string(command), "\x00", " "), groups: string(groups),
			zombie: strings.Contains(string(status), "State:\tZ"),
		}
		links, _ := filepath.Glob(filepath.Join(dir, "ns", "*"))
		for _, l := range links {
			if id, err := os.Readlink(l); err == nil {
				p.namespaces = append(p.namespaces, id)
			}
		}
		all = append(all, p)
	}
	return all
}

func fileLines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		lines = append(lines, scan.Text())
	}
	return lines
}
