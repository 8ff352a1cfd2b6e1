package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// mutatedSites is how many mutated sites the API server is asked about, and mutationsMade how many are made for it: about
// four in ten are accepted by vet.
const (
	mutatedSites  = 100
	mutationsMade = 320
)

// What vet accepts the API server takes: a hundred mutated sites, each object created in a server-side dry run. An object that
// the box has already is judged before that is noticed, and a HelmRelease's definition comes with a controller that the box has not.
func TestServerTakesMutatedSites(t *testing.T) {
	r := begin(t, 40*time.Minute)
	made := r.TempDir()
	fuzz := exec.CommandContext(r.ctx, "go", "test", "-count=1", "-timeout=30m", "-run=^TestMutatedSites$", "./renderer/mutation")
	fuzz.Dir = r.box.Source
	fuzz.Env = append(os.Environ(), "CGO_ENABLED=0", "BERTH_FUZZ_OUT="+made, "BERTH_FUZZ_FROM=2000000", "BERTH_FUZZ_SITES="+fmt.Sprint(mutationsMade))
	if out, err := fuzz.CombinedOutput(); err != nil {
		t.Fatalf("make mutated sites: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(made, "*.yaml"))
	if err != nil || len(files) < mutatedSites {
		t.Fatalf("only %d of %d mutated sites are accepted by vet, want %d (%v)", len(files), mutationsMade, mutatedSites, err)
	}
	objects := 0
	for _, file := range files[:mutatedSites] {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r.provideNamespaces(string(text))
		objects += r.mustBeTaken(file)
	}
	t.Logf("the API server takes all %d objects of %d mutated sites", objects, mutatedSites)
}

var namespaceOf = regexp.MustCompile(`(?m)^  namespace: "?([a-z0-9-]+)"?$`)

// provideNamespaces makes the namespaces that a site's objects lie in, until the test ends: a dry run makes none.
func (r *run) provideNamespaces(text string) {
	r.Helper()
	var wanted []string
	for _, match := range namespaceOf.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(wanted, match[1]) {
			wanted = append(wanted, match[1])
		}
	}
	there := strings.Fields(r.kubectl("get", "namespaces", "-o", "name"))
	for _, name := range wanted {
		if slices.Contains(there, "namespace/"+name) {
			continue
		}
		r.kubectl("create", "namespace", name)
		r.Cleanup(func() {
			ctx, cancel := aftermath()
			defer cancel()
			if _, err := r.box.Kubectl(ctx, "delete", "namespace", name, "--wait=false"); err != nil {
				r.Errorf("remove the namespace %s: %v", name, err)
			}
		})
	}
}

// harmless are complaints that say nothing against an object: another one of the name is there, another Service has its
// port, or the box lacks Flux's helm-controller with its definition.
var harmless = regexp.MustCompile(`\(AlreadyExists\)|provided port is already allocated|no matches for kind "HelmRelease"|^ensure CRDs are installed first$`)

// mustBeTaken creates the objects of a file in a dry run and gives how many the server judged.
func (r *run) mustBeTaken(file string) (objects int) {
	r.Helper()
	create := exec.CommandContext(r.ctx, r.box.KubectlPath(), "create", "--dry-run=server", "-o", "name", "-f", file)
	create.Env = append(os.Environ(), "KUBECONFIG="+r.box.Kubeconfig())
	var said, complaints bytes.Buffer
	create.Stdout, create.Stderr = &said, &complaints
	_ = create.Run() // it fails where one of the objects is there
	objects = len(strings.Fields(said.String()))
	for line := range strings.Lines(complaints.String()) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "Warning:"):
		case harmless.MatchString(line):
			objects++
		default:
			r.Errorf("%s: %s", filepath.Base(file), line)
		}
	}
	if objects < 30 {
		r.Errorf("%s: the server judged only %d objects:\n%s", filepath.Base(file), objects, complaints.String())
	}
	return objects
}
