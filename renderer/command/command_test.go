package command

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/secrets"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"berth": func() {
		env, err := Process()
		if err != nil {
			os.Exit(ExitError)
		}
		os.Exit(Run(context.Background(), env, os.Args[1:]))
	}})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			root, err := filepath.Abs("../..")
			// The examples and scripts use the shipped sites and the schema.
			env.Setenv("BERTH_SOURCE", root)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"repository": copyRepository, "exitcode": exitCode},
	})
}

// copyRepository makes a repository of the script's folder: `repository SITE...` with the schema and these shipped sites.
func copyRepository(ts *testscript.TestScript, _ bool, sites []string) {
	source := ts.Getenv("BERTH_SOURCE")
	for _, folder := range []string{"cue", "cue.mod"} {
		ts.Check(os.CopyFS(ts.MkAbs(folder), os.DirFS(filepath.Join(source, folder))))
	}
	ts.Check(os.MkdirAll(ts.MkAbs("clusters"), 0o755))
	for _, site := range sites {
		text, err := os.ReadFile(filepath.Join(source, "clusters", site+".cue"))
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs("clusters/"+site+".cue"), text, 0o644))
	}
}

// exitCode runs berth and demands an exit code: `exitcode 1 vet`.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	want := args[0]
	err := ts.Exec("berth", args[1:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if (got == want) == neg {
		ts.Fatalf("exit code %s (%v)", got, err)
	}
}

// Each command's examples are run, in a repository like the ones they speak of. A line that needs a cluster must fail for that
// reason alone.
func TestExamplesRun(t *testing.T) {
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	walkCommands(New(Environment{Variable: func(string) string { return "" }}), func(c *cobra.Command) {
		if c.Name() == "help" || strings.HasPrefix(c.Name(), "__") || c.Parent() != nil && c.Parent().Name() == "completion" {
			return
		}
		if strings.TrimSpace(c.Example) == "" {
			t.Errorf("%s has no example", c.CommandPath())
			return
		}
		t.Run(c.CommandPath(), func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "lab")
			for _, name := range []string{"cue", "cue.mod"} {
				if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(source, name))); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.CopyFS(filepath.Join(folder, "clusters"), os.DirFS(filepath.Join(source, "clusters"))); err != nil {
				t.Fatal(err)
			}
			for _, line := range strings.Split(c.Example, "\n") {
				line = strings.TrimSpace(line)
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				line, _, _ = strings.Cut(line, " > ")
				runExample(t, folder, strings.Fields(line))
			}
		})
	})
}

func runExample(t *testing.T, folder string, words []string) {
	t.Helper()
	if words[0] != "berth" {
		t.Fatalf("the example %q is not of berth", words)
	}
	if strings.Contains(strings.Join(words, " "), "secrets init") {
		// Each example of it stands for a site that has none yet, and some for a key that exists.
		os.RemoveAll(filepath.Join(folder, "clusters/lab/secrets"))
		key := filepath.Join(filepath.Dir(folder), "lab.agekey")
		if _, err := os.Stat(key); err != nil {
			runExample(t, folder, []string{"berth", "secrets", "key", "../lab.agekey"})
		}
		if len(words) == 4 { // the site names no recipient of its own in this repository
			words = append(words, "--identity", "../lab.agekey")
		}
	}
	if line := strings.Join(words, " "); strings.Contains(line, "secrets doctor") || strings.Contains(line, "secrets reseal") || strings.Contains(line, "secrets rotate") {
		sealForRecipients(t, folder)
	}
	if words[1] == "import" {
		for name, text := range map[string]string{
			"slurm.conf":      "ClusterName=old\nNodeName=n[1-2] NodeAddr=10.0.0.[1-2] CPUs=4 RealMemory=8000\nPartitionName=p Nodes=ALL Default=YES\n",
			"gres.conf":       "",
			"values-k3s.yaml": "pools: {cpu: {replicas: 2, cpus: 2, memory: 4Gi}}\n",
		} {
			if err := os.WriteFile(filepath.Join(filepath.Dir(folder), name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if words[1] == "render" && len(words) > 2 && words[len(words)-1] == "--check" {
		runExample(t, folder, []string{"berth", "render"})
	}
	if words[1] == "keys" {
		key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJm9mX0hQ0f3zQ8yR4yqBv2qk1sQw3nXo6aH5v0c0Zkt student@laptop\n"
		if err := os.WriteFile(filepath.Join(filepath.Dir(folder), "student.pub"), []byte(key), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if words[1] == "init" && words[2] == "." {
		folder = filepath.Join(folder, "mylab")
	}
	var out, errs bytes.Buffer
	env := Environment{In: strings.NewReader(""), Out: &out, Err: &errs, Directory: folder, Variable: func(name string) string {
		return map[string]string{"KUBECONFIG": "/nonexistent"}[name]
	}}
	if words[1] == "diff" {
		// In a repository of Git, whose last commit is what the examples compare with.
		if _, err := os.Stat(filepath.Join(folder, ".git")); err != nil {
			runExample(t, folder, []string{"berth", "render"})
			for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "-qm", "first"}} {
				if out, err := exec.Command("git", append([]string{"-C", folder}, args...)...).CombinedOutput(); err != nil {
					t.Fatalf("git %v: %v\n%s", args, err, out)
				}
			}
		}
	}
	if slices.Contains([]string{"status", "usage", "drain", "undrain", "backup", "restore"}, words[1]) || slices.Contains(words, "--live") {
		t.Setenv("KUBECONFIG", filepath.Join(folder, "none"))
		missing := "no cluster to ask"
		if words[1] == "restore" { // reads the file before it looks for a cluster
			missing = "lab-2026-11-02.zip: no such file"
		}
		if code := Run(t.Context(), env, words[1:]); code != ExitError || !strings.Contains(errs.String(), missing) {
			t.Errorf("%q without a cluster: exit code %d, %s", words, code, errs.String())
		}
		return
	}
	if words[1] == "secrets" && words[2] == "rotate" && !slices.Contains(words, "--finish") {
		// The keys of this site are seconds old.
		if code := Run(t.Context(), env, words[1:]); code != ExitError || !strings.Contains(errs.String(), "not every daemon may know the next key yet") {
			t.Errorf("%q of new keys: exit code %d, %s", words, code, errs.String())
		}
		return
	}
	if code := Run(t.Context(), env, words[1:]); code != ExitOK {
		t.Errorf("%q: exit code %d\n%s%s", words, code, out.String(), errs.String())
	}
}

// sealForRecipients gives the site lab a recipient, once, and secrets that are sealed for it.
func sealForRecipients(t *testing.T, folder string) {
	t.Helper()
	more := filepath.Join(folder, "clusters/recipients.cue")
	if _, err := os.Stat(more); err == nil {
		return
	}
	recipient, err := secrets.NewKey(filepath.Join(filepath.Dir(folder), "lab.agekey"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(more, []byte("package clusters\n\nlab: secrets: recipients: [\""+recipient+"\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	runExample(t, folder, []string{"berth", "secrets", "init", "lab", "--identity", "../lab.agekey"})
}

func walkCommands(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, below := range c.Commands() {
		walkCommands(below, visit)
	}
}

func TestColourOnlyOnATerminalThatWantsIt(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		noColor  string
		want     bool
	}{{true, "", true}, {true, "1", false}, {false, "", false}} {
		s := &settings{env: Environment{OutTerminal: c.terminal, Variable: func(name string) string {
			if name == "NO_COLOR" {
				return c.noColor
			}
			return ""
		}}}
		if got := s.colour(red, "x") != "x"; got != c.want {
			t.Errorf("terminal %v, NO_COLOR %q: coloured %v", c.terminal, c.noColor, got)
		}
	}
}
