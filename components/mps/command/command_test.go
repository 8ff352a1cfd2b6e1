package command

import (
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/mps/supervisor"
)

// supervised listens as a supervisor does and answers each request with answer; the requests are what it was asked.
func supervised(t *testing.T, answer supervisor.Answer) (root string, asked func() []supervisor.Request) {
	t.Helper()
	root = t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(root, supervisor.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	requests := make(chan supervisor.Request, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var r supervisor.Request
			_ = json.NewDecoder(conn).Decode(&r)
			requests <- r
			_ = json.NewEncoder(conn).Encode(answer)
			_ = conn.Close()
		}
	}()
	return root, func() (all []supervisor.Request) {
		for {
			select {
			case r := <-requests:
				all = append(all, r)
			default:
				return all
			}
		}
	}
}

func environment(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestProlog(t *testing.T) {
	root, asked := supervised(t, supervisor.Answer{})
	for _, c := range []struct {
		name string
		env  []string
		want []supervisor.Request
	}{
		{"a share", []string{percentName, "25", "SLURM_JOB_GPUS", "0"}, []supervisor.Request{{Do: "share", Job: "7", UID: 1001, Percent: 25}}},
		{"the whole card", []string{"SLURM_JOB_GPUS", "0"}, []supervisor.Request{{Do: "whole", Job: "7"}}},
		{"no card", nil, nil},
	} {
		h := hooks{root: root, getenv: environment(append(c.env, "SLURM_JOB_ID", "7", "SLURM_JOB_UID", "1001")...)}
		if err := h.prolog(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := asked(); len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%s: asked for %+v, want %+v", c.name, got, c.want)
		}
	}
	refused, _ := supervised(t, supervisor.Answer{Error: "the card takes no clients"})
	h := hooks{root: refused, getenv: environment(percentName, "25", "SLURM_JOB_ID", "7", "SLURM_JOB_UID", "1001")}
	if err := h.prolog(); err == nil || err.Error() != "the card takes no clients" {
		t.Errorf("the job starts on a card that is not ready: %v", err)
	}
}

func TestTaskProlog(t *testing.T) {
	root, _ := supervised(t, supervisor.Answer{Environment: &supervisor.Environment{Pipe: "/run/berth/mps/GPU-1", Visible: "0", Percent: 50, Memory: 10000 << 20}})
	none, _ := supervised(t, supervisor.Answer{})
	const all = "export CUDA_MPS_PIPE_DIRECTORY=/run/berth/mps/GPU-1\nexport CUDA_VISIBLE_DEVICES=0\nexport CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0="
	for _, c := range []struct{ name, root, percent, want string }{
		{"the job's share", root, "50", all + "5000M\n"},
		{"a step's part of it", root, "10", all + "1000M\n"},
		{"more than the job's share", root, "90", all + "5000M\n"},
		{"a task without a share", root, "", ""},
		{"a variable from elsewhere", none, "25", ""},
	} {
		var out bytes.Buffer
		if err := (hooks{root: c.root, getenv: environment(percentName, c.percent, "SLURM_JOB_ID", "7"), out: &out}).taskProlog(); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, out.String(), err, c.want)
		}
	}
	// A job without a share asks nobody, and so is never held up.
	if err := (hooks{root: "/nonexistent", getenv: environment("SLURM_JOB_ID", "7")}).taskProlog(); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"supervise --users=everybody", "neither one nor trusted"},
		{"supervise --card-memory=plenty", "no amount of memory"},
		{"supervise --reserve=-1", "no amount of memory"},
		{"supervise now", "unknown command"},
	} {
		command := newCommand()
		command.SetArgs(append(strings.Fields(c.args), "--root="+t.TempDir()))
		if err := command.Execute(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("mps %s: %v, want %q", c.args, err, c.want)
		}
	}
}
