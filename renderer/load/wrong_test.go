package load

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
// line holds a piece of the line that the message must point at (else the first "+ " line), "! " what berth says, "cue! " what
// cue vet alone says where that is not the same, and "problems " how many places are to be told of, if not one. The stranger of
// stranger_test.go has "says " and "~ ".
type wrongSite struct {
	site     string
	old, new []string
	at       string
	want     string
	wantCUE  string
	problems int
	says     string
	choices  [][2]string
}

func parseWrong(t *testing.T, text string) wrongSite {
	t.Helper()
	w := wrongSite{site: "lab", problems: 1}
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
		case "problems":
			w.problems, _ = strconv.Atoi(rest)
		case "cue!":
			w.wantCUE = rest
		case "says":
			w.says = rest
		case "~":
			from, to, _ := strings.Cut(rest, " => ")
			w.choices = append(w.choices, [2]string{from, to})
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
	t.Run("concern", func(t *testing.T) {
		for _, file := range files {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			concern := strings.TrimSuffix(filepath.Base(file), ".txtar")
			count += len(archive.Files)
			t.Run(concern, func(t *testing.T) {
				t.Parallel()
				checkConcern(t, filepath.Join(repository, concern), archive.Files, fired)
			})
		}
	})
	if count < 60 {
		t.Errorf("only %d wrong sites", count)
	}
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

// checkConcern evaluates a concern's wrong sites as one package, because reading the schema costs more than any of them.
func checkConcern(t *testing.T, dir string, cases []txtar.File, fired *firedRules) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mended := dir + "-mended" // beside it: CUE counts the files of the directories above to a package
	if err := os.Mkdir(mended, 0o755); err != nil {
		t.Fatal(err)
	}
	lines, texts := make([]int, len(cases)), make([]string, len(cases))
	for i, c := range cases {
		w := parseWrong(t, string(c.Data))
		original, err := os.ReadFile(filepath.Join("..", "..", "clusters", w.site+".cue"))
		if err != nil {
			t.Fatal(err)
		}
		var text string
		text, lines[i] = w.mutate(t, string(original))
		texts[i] = regexp.MustCompile(`(?m)^`+w.site+`:`).ReplaceAllString(text, siteName(i)+":")
		if err := os.WriteFile(filepath.Join(dir, siteName(i)+".cue"), []byte(texts[i]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seen, problems, err := inspect(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	sites := seen.sites
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			w := parseWrong(t, string(c.Data))
			j := slices.IndexFunc(sites, func(s evaluated) bool { return s.name == siteName(i) })
			if sites[j].err == nil {
				t.Fatalf("cue vet -c accepts it; want %q", w.wantCUE)
			}
			fired.add(sites[j].err)
			said := strings.ReplaceAll(cueerrors.Details(sites[j].err, nil), siteName(i)+".", w.site+".")
			if !strings.Contains(said, w.wantCUE) {
				t.Errorf("cue vet -c says\n%s\nwant %q", said, w.wantCUE)
			}
			file := filepath.Join(dir, siteName(i)+".cue")
			var own Problems
			for _, p := range problems {
				if p.File != file {
					continue
				}
				own = append(own, p)
				p.File = w.site + ".cue"
				t.Logf("%s", p)
			}
			text, ok := w.mend(t, texts[i], own)
			if !ok {
				t.Errorf("a stranger finds no mend in\n%v", own)
			}
			if err := os.WriteFile(filepath.Join(mended, siteName(i)+".cue"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if len(own) != w.problems {
				t.Errorf("one mistake gives %d problems, want %d:\n%v", len(own), w.problems, own)
			}
			for _, p := range own {
				if strings.Contains(p.String(), w.want) && p.Line == lines[i] {
					return
				}
			}
			t.Errorf("load says\n%v\nwant %q at line %d", own, w.want, lines[i])
		})
	}
	_, problems, err = inspect(mended, nil)
	if err != nil {
		t.Fatalf("the mended sites: %v", err)
	}
	for _, p := range problems {
		i, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(p.File), "case"), ".cue"))
		if err != nil {
			t.Errorf("the mended sites: %v", p)
			continue
		}
		t.Errorf("%s, as a stranger mends it: %v", cases[i].Name, p)
	}
}

func siteName(i int) string { return fmt.Sprintf("case%d", i) }
