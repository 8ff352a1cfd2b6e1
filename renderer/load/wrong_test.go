package load

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"cuelang.org/go/cue/ast"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"golang.org/x/tools/txtar"

	schema "github.com/berth-hpc/berth/cue"
)

// wrongSite is a shipped site with a mistake in it, read from testdata/wrong: lines that start with "- " are taken out of
// the site's file and the "+ " line put in their place; without "- " lines the "+ " lines go to the file's end. The "@ "
// line holds a piece of the line that the message must point at (else the first "+ " line), "! " what berth says, and
// "cue! " what cue vet alone says where that is not the same.
type wrongSite struct {
	site     string
	old, new []string
	at       string
	want     string
	wantCUE  string
}

func parseWrong(t *testing.T, text string) wrongSite {
	t.Helper()
	w := wrongSite{site: "lab"}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		key, rest, _ := strings.Cut(line, " ")
		switch key {
		case "site":
			w.site = rest
		case "-":
			w.old = append(w.old, rest)
		case "+":
			w.new = append(w.new, rest)
		case "@":
			w.at = rest
		case "!":
			w.want = rest
		case "cue!":
			w.wantCUE = rest
		case "":
		default:
			t.Fatalf("cannot read line %q", line)
		}
	}
	if w.wantCUE == "" {
		w.wantCUE, _, _ = strings.Cut(w.want, "; did you mean")
	}
	if w.at == "" {
		w.at = strings.TrimSpace(w.new[0])
	}
	return w
}

// mutate applies the change to the site's text and finds the line that is to blame.
func (w wrongSite) mutate(t *testing.T, text string) (changed string, line int) {
	t.Helper()
	appended := w.new
	if len(w.old) > 0 {
		old := strings.Join(w.old, "\n")
		if !strings.Contains(text, old) {
			t.Fatalf("the site %s has no %q", w.site, old)
		}
		text = strings.Replace(text, old, w.new[0], 1)
		appended = w.new[1:]
	}
	for _, l := range appended {
		text += l + "\n"
	}
	i := strings.LastIndex(text, w.at)
	if len(w.old) > 0 || w.at != strings.TrimSpace(w.new[0]) {
		i = strings.Index(text, w.at)
	}
	if i < 0 {
		t.Fatalf("the changed site has no %q", w.at)
	}
	return text, 1 + strings.Count(text[:i], "\n")
}

// TestWrongSites holds for every rule of the schema a site that fails by it. `cue vet -c` alone must refuse each and say why;
// load must refuse the same ones, and point at the user's line.
func TestWrongSites(t *testing.T) {
	repository := t.TempDir()
	if err := schema.Vendor(repository); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/wrong/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no wrong sites", err)
	}
	fired := &firedRules{at: make(map[string]bool)}
	count := 0
	t.Run("sites", func(t *testing.T) {
		for _, file := range files {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			concern := strings.TrimSuffix(filepath.Base(file), ".txtar")
			for _, c := range archive.Files {
				count++
				dir := filepath.Join(repository, fmt.Sprintf("%s-%d", concern, count))
				t.Run(concern+"/"+c.Name, func(t *testing.T) {
					t.Parallel()
					checkWrong(t, dir, parseWrong(t, string(c.Data)), fired)
				})
			}
		}
	})
	if t.Failed() || testing.Short() {
		return
	}
	// Every message in the schema was seen: a rule that no site fails by is a rule that may never have worked.
	for _, rule := range rulesOf(t) {
		if !fired.at[rule] {
			t.Errorf("%s: no site in testdata/wrong fails by this rule", rule)
		}
	}
}

// firedRules collects where in the schema the messages stand that were seen.
type firedRules struct {
	mu sync.Mutex
	at map[string]bool
}

func (f *firedRules) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range cueerrors.Errors(err) {
		if p := e.Position(); p.IsValid() {
			f.at[fmt.Sprintf("%s:%d", filepath.Base(p.Filename()), p.Line())] = true
		}
	}
}

// rulesOf lists where the schema calls error.
func rulesOf(t *testing.T) []string {
	t.Helper()
	files, err := schema.Files()
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for name, text := range files {
		file, err := parser.ParseFile(name, text)
		if err != nil {
			t.Fatal(err)
		}
		ast.Walk(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "error" {
					rules = append(rules, fmt.Sprintf("%s:%d", name, call.Pos().Line()))
				}
			}
			return true
		}, nil)
	}
	slices.Sort(rules)
	return rules
}

func checkWrong(t *testing.T, dir string, w wrongSite, fired *firedRules) {
	original, err := os.ReadFile(filepath.Join("..", "..", "clusters", w.site+".cue"))
	if err != nil {
		t.Fatal(err)
	}
	text, line := w.mutate(t, string(original))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, w.site+".cue")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}

	sites, problems, err := inspect(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sites[0].err == nil {
		t.Fatalf("cue vet -c accepts it; want %q", w.wantCUE)
	}
	fired.add(sites[0].err)
	if said := cueerrors.Details(sites[0].err, nil); !strings.Contains(said, w.wantCUE) {
		t.Errorf("cue vet -c says\n%s\nwant %q", said, w.wantCUE)
	}
	for _, p := range problems {
		if strings.Contains(p.String(), w.want) && p.File == file && p.Line == line {
			return
		}
	}
	t.Errorf("load says\n%v\nwant %q at line %d", problems, w.want, line)
}
