package mutation_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	cueload "cuelang.org/go/cue/load"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/check"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/inflate"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/mutation"
	"github.com/berth-hpc/berth/renderer/site"
)

const clusters = "../../clusters"

// The run is set by the environment, so that `make fuzz` and a person after one failure can choose:
//
//	BERTH_FUZZ_SITES  how many sites (48)
//	BERTH_FUZZ_FROM   the number of the first (0)
//	BERTH_FUZZ_SEED   the seed (1)
//	BERTH_FUZZ_OUT    a directory for what the accepted sites bring into a cluster, one YAML file a site
//	BERTH_FUZZ_SLURMCTLD  1: a real slurmctld is started with each accepted site too (BERTH_SLURM_ROOT)
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv("BERTH_FUZZ_" + name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("BERTH_FUZZ_%s: %v", name, err)
	}
	return value
}

// Every mutated site is accepted by cue and berth, or refused by both, with a place in the user's files; what is accepted renders
// to objects that the API of Kubernetes 1.34 and Flux takes and that keep to policy; and slurmctld, where there is one, starts with it.
func TestMutatedSites(t *testing.T) {
	maker, err := mutation.New(clusters)
	if err != nil {
		t.Fatal(err)
	}
	seed, from, count := setting(t, "SEED", 1), setting(t, "FROM", 0), setting(t, "SITES", 48)
	out := os.Getenv("BERTH_FUZZ_OUT")
	var slurmctld *scratch
	if setting(t, "SLURMCTLD", 0) == 1 {
		slurmctld = newScratch(t)
	}
	var accepted, refused atomic.Int64
	numbers := make(chan uint64)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		j := newJudge(t)
		workers.Go(func() {
			for n := range numbers {
				s := maker.Make(seed, n)
				made, err := j.judge(s)
				if slurmctld != nil && made != nil && err == nil {
					err = slurmctld.start(t.Context(), made)
				}
				switch {
				case err != nil:
					t.Errorf("%v\nagain: BERTH_FUZZ_SEED=%d BERTH_FUZZ_FROM=%d BERTH_FUZZ_SITES=1 go test -run TestMutatedSites ./renderer/mutation\n%s", err, seed, n, s)
				case made == nil:
					refused.Add(1)
				default:
					accepted.Add(1)
					if out != "" {
						if err := write(filepath.Join(out, fmt.Sprintf("%06d.yaml", n)), made); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	for n := from; n < from+count; n++ {
		numbers <- n
	}
	close(numbers)
	workers.Wait()
	t.Logf("seed %d, sites %d to %d: %d accepted, %d refused", seed, from, from+count-1, accepted.Load(), refused.Load())
	if count >= 48 && accepted.Load()*10 < int64(count)*3 {
		t.Errorf("only %d of %d are accepted: too few to say anything about rendering", accepted.Load(), count)
	}
}

func write(path string, made *emit.Rendered) error {
	text, err := inflate.YAML(made.Inflated)
	if err != nil {
		return err
	}
	for _, o := range entry(made) {
		one, err := o.YAML()
		if err != nil {
			return err
		}
		text = append(append(text, "---\n"...), one...)
	}
	return os.WriteFile(path, text, 0o644)
}

// judge holds the repository in which one worker looks at sites.
type judge struct {
	root, clusters string
	// The schema is compiled for many sites at once.
	context *cue.Context
	imports []*build.Instance
	uses    int
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	root := t.TempDir()
	if err := schema.Vendor(root); err != nil {
		t.Fatal(err)
	}
	j := &judge{root: root, clusters: filepath.Join(root, "clusters")}
	if err := os.Mkdir(j.clusters, 0o755); err != nil {
		t.Fatal(err)
	}
	return j
}

// judge looks at one site by cue and by berth. It gives what an accepted one renders to, nil for one that both refuse, and an
// error where something is wrong with Berth.
func (j *judge) judge(s mutation.Site) (*emit.Rendered, error) {
	if len(s.Files) == 0 {
		return nil, fmt.Errorf("no site was made: %v", s.Edits)
	}
	old, err := filepath.Glob(filepath.Join(j.clusters, "*.cue"))
	if err != nil {
		return nil, err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	for name, text := range s.Files {
		if err := os.WriteFile(filepath.Join(j.clusters, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	byCUE := j.cueVet()
	opened, byBerth := load.Open(j.clusters)
	switch {
	case byCUE != nil && byBerth != nil:
		return nil, explained(byBerth, j.clusters)
	case byCUE != nil:
		return nil, fmt.Errorf("cue refuses it, berth does not: %w", byCUE)
	case byBerth != nil:
		return nil, fmt.Errorf("berth refuses it, cue does not: %w", byBerth)
	}
	for _, one := range opened.Sites {
		if one.Name == s.Name {
			return j.render(opened, one.Name)
		}
	}
	return nil, fmt.Errorf("the site %s is gone", s.Name)
}

// render does what vet does behind the schema, and render and check.
func (j *judge) render(opened *load.Package, name string) (*emit.Rendered, error) {
	if conflicts := compile.Conflicts(opened.Sites); len(conflicts) > 0 {
		// Comparing sites with each other is berth's alone; the one way here is a box that names another site as its origin.
		if one := conflicts[0]; len(conflicts) == 1 && one.Field[0] == "variantOf" {
			return nil, nil
		}
		return nil, fmt.Errorf("sites of one repository conflict: %v", conflicts)
	}
	for _, one := range opened.Sites {
		if one.Name != name {
			continue
		}
		made, err := emit.Render(j.root, one, compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
		if err != nil {
			return nil, fmt.Errorf("cue accepts it and it does not render: %w", err)
		}
		report, err := check.Site(made.Inflated, entry(made), func(layer string) string { return "patches/" + layer })
		if err != nil {
			return nil, fmt.Errorf("cannot be checked: %w", err)
		}
		if len(report.Findings) > 0 {
			return nil, fmt.Errorf("cue accepts it and check does not: %v", report.Findings)
		}
		return made, nil
	}
	return nil, nil
}

func entry(made *emit.Rendered) []manifest.Object {
	var objects []manifest.Object
	for _, o := range made.Compiled.Entry {
		objects = append(objects, o)
	}
	manifest.Sort(objects)
	return objects
}

// explained demands of a refusal what a person needs: places in the user's own files, and words.
func explained(err error, dir string) error {
	var problems load.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		return fmt.Errorf("refused without a problem that is named: %w", err)
	}
	for _, p := range problems {
		if p.Line == 0 || filepath.Dir(p.File) != dir || strings.TrimSpace(p.Message) == "" || strings.Contains(p.Message, "%!") {
			return fmt.Errorf("refused without a line of the user's, or without words: %s\n(all: %w)", p, err)
		}
	}
	return nil
}

// cueVet does what `cue vet -c ./clusters` does, as cuelang.org/go/cmd/cue does it; TestCueCommandAgrees and the sample below hold
// it to the command itself.
func (j *judge) cueVet() error {
	instance := cueload.Instances([]string{"."}, &cueload.Config{Dir: j.clusters, Env: append(os.Environ(), "CUE_REGISTRY=none")})[0]
	if instance.Err != nil {
		return instance.Err
	}
	if j.uses%100 == 0 {
		j.context, j.imports = cuecontext.New(), instance.Imports
	}
	j.uses++
	instance.Imports = j.imports
	return j.context.BuildInstance(instance).Validate(cue.Attributes(true), cue.Definitions(true), cue.Hidden(true), cue.Concrete(true))
}

// A sample, each looked at by the real cue command: what this test does in its process is what people run.
func TestCommandAgrees(t *testing.T) {
	command, err := filepath.Abs("../../bin/cue")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(command); err != nil {
		if command, err = exec.LookPath("cue"); err != nil {
			t.Skip("no cue command; make build builds it")
		}
	}
	maker, err := mutation.New(clusters)
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge(t)
	for n := range setting(t, "COMMANDS", 8) {
		s := maker.Make(setting(t, "SEED", 1), 1_000_000+n)
		made, err := j.judge(s)
		if err != nil {
			t.Errorf("%v\n%s", err, s)
			continue
		}
		vet := exec.Command(command, "vet", "-c", "./clusters")
		vet.Dir = j.root
		vet.Env = append(os.Environ(), "CUE_REGISTRY=none")
		if said, err := vet.CombinedOutput(); (err == nil) != (made != nil) {
			t.Errorf("cue vet says %v\n%s\n%s", err, said, s)
		}
	}
}

// The same seed gives the same sites, whoever asks in whatever order.
func TestSameSeedSameSites(t *testing.T) {
	maker, err := mutation.New(clusters)
	if err != nil {
		t.Fatal(err)
	}
	again, err := mutation.New(clusters)
	if err != nil {
		t.Fatal(err)
	}
	distinct := map[string]bool{}
	for n := range uint64(200) {
		text := maker.Make(7, n).String()
		if other := again.Make(7, n).String(); other != text {
			t.Fatalf("number %d is\n%s\nand again\n%s", n, text, other)
		}
		distinct[text] = true
	}
	if len(distinct) < 190 {
		t.Errorf("only %d of 200 sites differ", len(distinct))
	}
}

// Every field of a site can be set by a mutation: by a setting of its own or as a part of one's values.
func TestSettingsReachEveryField(t *testing.T) {
	text, err := os.ReadFile("settings.txt")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(of reflect.Type, path string)
	walk = func(of reflect.Type, path string) {
		for _, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, strings.TrimPrefix(path, ".")+" ") {
				return
			}
		}
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(of.Elem(), path)
		case reflect.Map:
			walk(of.Elem(), path+".*")
		case reflect.Struct:
			for field := range of.Fields() {
				if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
					walk(field.Type, path+"."+name)
				}
			}
		default:
			parent, leaf := path[:strings.LastIndex(path, ".")], path[strings.LastIndex(path, ".")+1:]
			made := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(strings.TrimPrefix(strings.TrimSuffix(parent, ".*")+".new", ".")) + ` .*\b` + leaf + `: `)
			if !made.MatchString(string(text)) && !slices.Contains(derived, strings.TrimPrefix(path, ".")) {
				t.Errorf("settings.txt has no line for %s", strings.TrimPrefix(path, "."))
			}
		}
	}
	walk(reflect.TypeFor[site.Site](), "")
}

// derived fields follow from others, or from which of two is set.
var derived = []string{"pools.*.model", "pools.*.speed", "pools.*.gpuMemory", "pools.*.partition.pools", "storage.type"}
