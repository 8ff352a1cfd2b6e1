// Package benchmark holds the renderer's figures of make bench: what loading, rendering and inflating cost beside the tools that
// people would run instead. Costs are processor time, the system's included, so that what else the machine does matters less.
package benchmark

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	cueload "cuelang.org/go/cue/load"
	"go.yaml.in/yaml/v3"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/load"
)

const rounds = 9

// parts are what a process of its own does, from a cold start of the code but not counting the start of the process.
var parts = map[string]func() error{
	// What `cue vet -c clusters/lab.cue` does (cuelang.org/go/cmd/cue).
	"vet": func() error {
		instance := cueload.Instances([]string{"lab.cue"}, &cueload.Config{Dir: "../../clusters", Env: append(os.Environ(), "CUE_REGISTRY=none")})[0]
		if instance.Err != nil {
			return instance.Err
		}
		return cuecontext.New().BuildInstance(instance).Validate(cue.Attributes(true), cue.Definitions(true), cue.Hidden(true), cue.Concrete(true))
	},
	"load": func() error {
		sites, err := load.Load("../../clusters", "lab")
		if err != nil {
			return err
		}
		_, err = compile.Compile(sites[0], rendering())
		return err
	},
	// All of inflate but the start of the process and the printing.
	"inflate": func() error {
		sites, err := load.Load("../../clusters", "lab")
		if err != nil {
			return err
		}
		_, err = emit.Render("../..", sites[0], rendering())
		return err
	},
}

func rendering() compile.Parts {
	return compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()}
}

const partVariable = "BERTH_BENCH_PART"

func TestMain(m *testing.M) {
	part, ok := parts[os.Getenv(partVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	before := processor()
	if err := part(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println((processor() - before).Microseconds())
}

func processor() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // RUSAGE_SELF cannot fail
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Figures of make bench. Each round does one thing after the other; of nine ratios the second and the eighth enclose the median with
// 96 %, and the verdict is theirs.
func TestBench(t *testing.T) {
	if os.Getenv("BERTH_BENCH") != "1" {
		t.Skip("figures of make bench: set BERTH_BENCH=1")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, root: root}
	for _, figure := range []struct {
		name string
		make func()
	}{
		{"load-lab", b.loads}, {"inflate-lab", b.inflates}, {"render-1000-pools", b.renders},
	} {
		if strings.Contains(figure.name, os.Getenv("BERTH_BENCH_NAME")) || strings.HasPrefix(os.Getenv("BERTH_BENCH_NAME"), figure.name) {
			figure.make()
		}
	}
}

type bench struct {
	*testing.T
	root string
}

// use is what a process cost.
type use struct {
	processor time.Duration
	memory    int64 // its peak, in bytes
}

// run gives what a command cost, or stops the test with what it said.
func (b *bench) run(folder string, args ...string) use {
	b.Helper()
	command := exec.CommandContext(context.Background(), args[0], args[1:]...)
	command.Dir = folder
	var said strings.Builder
	command.Stderr = &said
	if err := command.Run(); err != nil {
		b.Fatalf("%v: %v\n%s", args, err, said.String())
	}
	state := command.ProcessState
	usage := state.SysUsage().(*syscall.Rusage)
	return use{state.UserTime() + state.SystemTime(), usage.Maxrss << 10}
}

// part gives what a part cost in a process of its own.
func (b *bench) part(name string) time.Duration {
	b.Helper()
	command := exec.CommandContext(context.Background(), os.Args[0])
	command.Env = append(os.Environ(), partVariable+"="+name)
	if name != "vet" {
		command.Env = append(command.Env, "GOGC=400") // as the berth command sets it; cue's does not
	}
	out, err := command.CombinedOutput()
	var microseconds int64
	if _, scan := fmt.Sscan(string(out), &microseconds); err != nil || scan != nil {
		b.Fatalf("%s: %v\n%s", name, err, out)
	}
	return time.Duration(microseconds) * time.Microsecond
}

func (b *bench) tool(name string) string {
	b.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		b.Fatalf("needs %s: %v; make bench builds it", name, err)
	}
	return path
}

// print gives a figure's line. Ratios are to stay at or below the goal, or, where more is better, to reach it.
func (b *bench) print(name string, values []float64, unit string, ratios []float64, goal float64, moreIsBetter bool) {
	slices.Sort(values)
	slices.Sort(ratios)
	low, high := ratios[len(ratios)/5], ratios[len(ratios)-1-len(ratios)/5]
	verdict := "undecided"
	switch {
	case moreIsBetter && low >= goal, !moreIsBetter && high <= goal:
		verdict = "ok"
	case moreIsBetter && high < goal, !moreIsBetter && low > goal:
		verdict = "short"
	}
	fmt.Printf("%s %.0f %s %.2f %g %s\n", name, values[len(values)/2], unit, ratios[len(ratios)/2], goal, verdict)
}

// Loading and compiling lab.cue beside vetting it.
func (b *bench) loads() {
	var values, ratios []float64
	for range rounds {
		vet, own := b.part("vet"), b.part("load")
		values = append(values, own.Seconds()*1000)
		ratios = append(ratios, own.Seconds()/vet.Seconds())
	}
	b.print("load-lab", values, "ms", ratios, 1.5, false)
}

// Inflate beside the same by commands: cue export of the site, helm template of our chart with the values that render wrote,
// kustomize build of each layer and of the entry points. Once as whole processes, once without the start of berth's.
func (b *bench) inflates() {
	berth, cue, helm, kustomize := b.tool("berth"), b.tool("cue"), b.tool("helm"), b.tool("kustomize")
	values := b.values()
	folders, err := filepath.Glob(filepath.Join(b.root, "overlays/lab/*/kustomization.yaml"))
	if err != nil || len(folders) == 0 {
		b.Fatalf("no layers of lab: %v", err)
	}
	folders = append(folders, filepath.Join(b.root, "clusters/lab/kustomization.yaml"))
	var whole, inside, ratios, insideRatios []float64
	for range rounds {
		chain := b.run(b.root, cue, "export", "./clusters/lab.cue").processor
		chain += b.run(b.root, helm, "template", "slurm", "components/chart/slurm-platform", "--namespace", "slurm", "--kube-version", "1.34.0", "--values", values).processor
		for _, folder := range folders {
			chain += b.run(b.root, kustomize, "build", "--load-restrictor", "LoadRestrictionsNone", filepath.Dir(folder)).processor
		}
		own, part := b.run(b.root, berth, "inflate", "lab").processor, b.part("inflate")
		whole, inside = append(whole, own.Seconds()*1000), append(inside, part.Seconds()*1000)
		ratios, insideRatios = append(ratios, chain.Seconds()/own.Seconds()), append(insideRatios, chain.Seconds()/part.Seconds())
	}
	b.print("inflate-lab", whole, "ms", ratios, 5, true)
	b.print("inflate-lab/without-start", inside, "ms", insideRatios, 5, true)
}

// values writes the chart's values of lab to a file, for helm.
func (b *bench) values() string {
	found, err := filepath.Glob(filepath.Join(b.root, "overlays/lab/slurm/configmap-slurm-values-*.yaml"))
	if err != nil || len(found) != 1 {
		b.Fatalf("the values of lab: %v %v", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		b.Fatal(err)
	}
	var config struct {
		Data map[string]string `yaml:"data"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(config.Data["values.yaml"]), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

// Rendering sites of many pools beside vetting them, and how the memory of it grows. A round of 1,000 takes most of a minute, so
// there are three, and the verdict is that of all.
func (b *bench) renders() {
	berth, cue := b.tool("berth"), b.tool("cue")
	repositories := map[int]string{}
	for _, pools := range []int{250, 500, 1000} {
		repositories[pools] = b.repository(pools)
	}
	var values, ratios, memories, growths []float64
	for range 3 {
		vet := b.run(repositories[1000], cue, "vet", "-c", "./clusters/large.cue")
		used := map[int]use{}
		for pools, folder := range repositories {
			used[pools] = b.run(folder, berth, "render", "large")
		}
		values = append(values, used[1000].processor.Seconds())
		ratios = append(ratios, used[1000].processor.Seconds()/vet.processor.Seconds())
		memories = append(memories, float64(used[1000].memory)/1e6)
		growths = append(growths, float64(used[1000].memory-used[500].memory)/float64(used[500].memory-used[250].memory))
	}
	b.print("render-1000-pools", values, "s", ratios, 3, false)
	// Twice the pools, twice the memory: from 500 to 1,000 it grows by twice what it grows by from 250 to 500, give or take a
	// collection of garbage. Growth by the square would be four times.
	b.print("render-1000-pools/memory", memories, "MB", growths, 2.5, false)
}

// repository is one with a site of so many pools, 50 on a host.
func (b *bench) repository(pools int) string {
	root := b.TempDir()
	b.run(root, b.tool("berth"), "init", root, "--site", "large")
	var text strings.Builder
	text.WriteString(`package clusters

import "github.com/berth-hpc/berth/cue:site"

large: site.#Site & {
	cluster: name: "large"
	network: lan: "10.1.0.0/16"
	accounts: work: {}
	users: me: {uid: 1001, account: "work"}
	storage: nfs: {server: "10.1.1.1", path: "/srv", allowedCIDRs: ["10.1.0.0/16", "10.42.0.0/16"]}
	delivery: url: "https://git.example.org/large.git"
`)
	for h := range pools / 50 {
		fmt.Fprintf(&text, "\thosts: h%d: {address: \"10.1.0.%d\", cpus: 256, memory: \"1Ti\"}\n", h, h+1)
	}
	for p := range pools {
		fmt.Fprintf(&text, "\tpools: p%d: {max: 2, cpus: 2, memory: \"4Gi\", hosts: [\"h%d\"]}\n", p, p%(pools/50))
	}
	text.WriteString("}\n")
	folder := filepath.Join(root, "clusters")
	if err := os.RemoveAll(folder); err != nil { // the site that init begins
		b.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "large.cue"), []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	return root
}
