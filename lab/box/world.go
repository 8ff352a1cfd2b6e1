package box

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-hpc/berth/lab/egress"
	"github.com/berth-hpc/berth/lab/supervisor"
)

// InitCommand is the hidden argument by which the box's first process runs this
// program.
const InitCommand = "init"

// worldPid is the pid, on the machine, of the box's first process, if it runs:
// the one of the pid file, if that process started when the file says.
func (b *Box) worldPid() (int, bool) {
	text, err := os.ReadFile(b.path("run", "init.pid"))
	if err != nil {
		return 0, false
	}
	return running(string(text))
}

// answers tells whether the box's first process runs and takes requests; one
// that is being killed does not.
func (b *Box) answers(ctx context.Context) bool {
	if _, up := b.worldPid(); !up {
		return false
	}
	_, err := b.client.Units(ctx)
	return err == nil
}

// running reads "pid start" and tells whether that very process lives; a pid
// that another process got since is told apart by its start.
func running(pidFile string) (int, bool) {
	fields := strings.Fields(pidFile)
	if len(fields) != 2 {
		return 0, false
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 0 {
		return 0, false
	}
	start, zombie, err := processStart(pid)
	return pid, err == nil && !zombie && start == fields[1]
}

// processStart is field 22 of /proc/<pid>/stat, the start in clock ticks since
// the machine's boot, and whether the process is a zombie (proc(5)).
func processStart(pid int) (start string, zombie bool, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false, err
	}
	// The name, field 2, is in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return "", false, fmt.Errorf("/proc/%d/stat: not understood: %q", pid, text)
	}
	return fields[19], fields[0] == "Z", nil
}

// startWorld makes the box's namespaces and its first process.
func (b *Box) startWorld(ctx context.Context) error {
	rules := b.path("run", "egress.nft")
	if err := os.WriteFile(rules, []byte(egress.Rules(b.inside)), 0o644); err != nil {
		return err
	}
	config := supervisor.Config{
		Dir: b.Dir, Socket: b.path("run", "box.sock"), LogDir: b.path("log"), RunDir: b.path("run"),
		Hostname: NodeName,
		Mounts: []supervisor.Mount{
			{Target: "/run"},
			{Target: "/var/log"},
			{Source: b.path("kubelet"), Target: "/var/lib/kubelet"},
			{Target: "/var/lib/cni"},
		},
		Setup: append(egress.Setup(b.inside, rules),
			// The CNI plugin would make the pods' bridge itself, with multicast.
			[]string{"/usr/sbin/ip", "link", "add", podBridge, "type", "bridge", "mcast_snooping", "0"}),
		Sysctls: map[string]string{
			"net/ipv4/ip_forward": "1",
			// NetworkPolicies hold between pods on one bridge too.
			"net/bridge/bridge-nf-call-iptables":  "1",
			"net/bridge/bridge-nf-call-ip6tables": "0",
			"net/ipv4/conf/all/rp_filter":         "0",
		},
		Devices: map[string]string{},
		Doors:   []string{"127.0.0.1:" + apiPort, "127.0.0.1:" + gitPort},
	}
	if b.path("storage") != StorageDir {
		config.Mounts = append(config.Mounts, supervisor.Mount{Source: b.path("storage"), Target: StorageDir})
	}
	for i := range b.Cards {
		config.Devices[fmt.Sprintf("%s/nvidia%d", deviceDir, i)] = "1:3" // as /dev/null
	}
	if err := b.makeMountPoints(config.Mounts); err != nil {
		return err
	}
	file := b.path("run", "init.json")
	if err := writeJSON(file, config, 0o644); err != nil {
		return err
	}
	doors, err := b.openDoors()
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range doors {
			d.Close()
		}
	}()
	return b.spawnWorld(ctx, file, doors)
}

func (b *Box) spawnWorld(ctx context.Context, config string, doors []*os.File) error {
	logPath := b.path("log", "init.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not CommandContext: the box outlives this process.
	cmd := exec.Command(b.path("bin", "box"), InitCommand, config)
	cmd.Dir = "/"
	cmd.Env = daemonEnv()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = doors
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("box: start its first process: %w (it needs root and a kernel with namespaces)", err)
	}
	start, _, err := processStart(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("box: its first process: %w", err)
	}
	if err := os.WriteFile(b.path("run", "init.pid"), fmt.Appendf(nil, "%d %s\n", cmd.Process.Pid, start), 0o644); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if _, err := b.client.Units(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("box: its first process ended: %v; %s says:\n%s", err, logPath, lastLines(logPath, 10))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// openDoors listens on the machine's loopback for what the doors lead to.
func (b *Box) openDoors() ([]*os.File, error) {
	var files []*os.File
	for _, d := range []struct{ port, what, variable string }{
		{b.APIPort, "the API server", "BERTH_LAB_API_PORT"},
		{b.GitPort, "the git server", "BERTH_LAB_GIT_PORT"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:"+d.port)
		if err != nil {
			return nil, fmt.Errorf("box: port for %s: %w; name a free one in %s", d.what, err, d.variable)
		}
		f, err := l.(*net.TCPListener).File()
		l.Close()
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// makeMountPoints makes the directories that the box mounts over and that the
// machine does not have, and remembers them, so that Down removes them again.
func (b *Box) makeMountPoints(mounts []supervisor.Mount) error {
	f, err := os.OpenFile(b.path("made-directories"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, m := range mounts {
		if _, err := os.Stat(m.Target); err == nil {
			continue
		}
		if _, err := fmt.Fprintln(f, m.Target); err != nil {
			return err
		}
		if err := os.MkdirAll(m.Target, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// endWorld ends the box's first process and with it everything in the box. The
// kernel ends the processes of a box whose first one was killed, but not at once.
func (b *Box) endWorld(ctx context.Context) error {
	if pid, up := b.worldPid(); up {
		if err := b.client.Shutdown(ctx, 8*time.Second); err != nil {
			// It does not listen: the kernel ends the box with its first process.
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("box: end process %d: %w", pid, err)
			}
		}
	}
	if b.waitGone(12 * time.Second) {
		return nil
	}
	if pid, up := b.worldPid(); up {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if !b.waitGone(20 * time.Second) {
		return fmt.Errorf("box: processes of the box do not end:\n  %s", strings.Join(b.living(), "\n  "))
	}
	return nil
}

// waitGone waits until the first process, the daemons and the pods have ended.
func (b *Box) waitGone(within time.Duration) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		if _, up := b.worldPid(); !up && len(b.living()) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// living lists the processes of the box as the machine sees them, zombies left
// out: its daemons, known by their programs, and its pods', known by their
// control group.
func (b *Box) living() []string {
	var all []string
	for _, pid := range processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || pid == os.Getpid() {
			continue // a kernel thread, a zombie, or gone
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		words := strings.Split(strings.TrimRight(string(command), "\x00"), "\x00")
		if b.ours(exe, words) || strings.Contains(string(groups), ":/"+b.cgroup()+"/") {
			all = append(all, fmt.Sprintf("process %d: %s", pid, strings.Join(words, " ")))
		}
	}
	return all
}

func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupRoots are the hierarchies of control groups mounted here.
func cgroupRoots() ([]string, error) {
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, m := range mounts {
		if m.kind == "cgroup" || m.kind == "cgroup2" {
			roots = append(roots, m.target)
		}
	}
	return roots, nil
}

// cgroup is the name of the control group below which the kubelet keeps its
// pods: that of the box's directory, berth-lab.
func (b *Box) cgroup() string { return filepath.Base(b.Dir) }

func (b *Box) makeCgroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, r := range roots {
		if err := os.Mkdir(filepath.Join(r, b.cgroup()), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("box: control group: %w", err)
		}
	}
	return nil
}

// removeCgroups removes what is left of the box's control groups, deepest first.
func (b *Box) removeCgroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, r := range roots {
		var dirs []string
		top := filepath.Join(r, b.cgroup())
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // a group that vanishes meanwhile is as good
		})
		if err != nil {
			return err
		}
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("box: control group: %w", err)
			}
		}
	}
	return nil
}

type mountPoint struct{ target, kind string }

// mountPoints reads /proc/self/mountinfo (proc(5)).
func mountPoints() ([]mountPoint, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMounts(f)
}

func parseMounts(r io.Reader) ([]mountPoint, error) {
	var all []mountPoint
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 1 {
			return nil, fmt.Errorf("mountinfo: not understood: %q", lines.Text())
		}
		// Blanks and the like come as \040.
		target := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(left[4])
		all = append(all, mountPoint{target: target, kind: right[0]})
	}
	return all, lines.Err()
}

func writeJSON(path string, v any, mode os.FileMode) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return writeFile(path, append(text, '\n'), mode)
}

// writeFile writes the file unless it holds that text already: kube-proxy ends
// when its configuration is touched.
func writeFile(path string, text []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return os.WriteFile(path, text, mode)
}

func lastLines(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return "  " + strings.Join(lines, "\n  ")
}

// daemonEnv is the environment of the box's daemons: nothing of the caller's.
func daemonEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
}
