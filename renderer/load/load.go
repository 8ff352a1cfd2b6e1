// Package load turns a directory of CUE sites into typed sites, or into the list of everything that is wrong with them.
// It reads files and evaluates CUE; it renders nothing and never touches a cluster or the network.
//
// It accepts exactly what `cue vet -c` accepts, with exceptions that CUE cannot express: a field that is no site.#Site, a site
// whose name cannot be a directory's, and files that CUE passes over without a word or that are not UTF-8. Where cue stops at
// the first mistake that hides others, load takes the mistake out and looks again.
package load

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"

	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/site"
)

// patience bounds one evaluation where BERTH_CUE_TIMEOUT does not say. A site of a thousand users takes two seconds; releases of CUE have
// hung on recursion.
const patience = 5 * time.Minute

// limit is how long one evaluation may take.
func limit() (time.Duration, error) {
	text := os.Getenv("BERTH_CUE_TIMEOUT")
	if text == "" {
		return patience, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("BERTH_CUE_TIMEOUT is %q, which is no time; write one such as 90s or 10m, or leave it out for %v", text, patience)
	}
	return d, nil
}

// memory bounds what an evaluation may hold where GOMEMLIMIT does not say: a site of a thousand pools takes a gigabyte, garbage
// included. A site that doubles a text thirty times is cut before it fills a laptop.
const memory = 3 << 30

// bounded calls evaluate and turns a panic of CUE's, or an evaluation that does not end or fills the memory, into an error. The
// goroutine of one that does not end is left behind: CUE cannot be interrupted.
func bounded[T any](dir string, evaluate func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	limit, err := limit()
	if err != nil {
		return none, err
	}
	most := debug.SetMemoryLimit(-1)
	if most == math.MaxInt64 {
		most = memory
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(most)) // garbage goes before it counts
	}
	defer debug.SetMaxStack(debug.SetMaxStack(math.MaxInt)) // a stack counts as memory; Go's own limit ends the process
	done := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				line, _, _ := strings.Cut(fmt.Sprint(p), "\n")
				done <- result{err: fmt.Errorf("%s: CUE failed while it evaluated the sites (%s); `cue vet -c %s` may say more", dir, line, dir)}
			}
		}()
		value, err := evaluate()
		done <- result{value, err}
	}()
	late := time.After(limit)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case r := <-done:
			return r.value, r.err
		case <-late:
			return none, abandoned("%s: CUE did not finish evaluating the sites within %v; look for a list that is made of every pair or triple of others, or a definition that uses itself (BERTH_CUE_TIMEOUT sets another limit)", dir, limit)
		case <-look.C:
			if held() > most {
				return none, abandoned("%s: CUE took more than %d MiB of memory to evaluate the sites and was stopped; look for a text or list that is made of copies of another, or of every pair of two lists (GOMEMLIMIT sets another limit)", dir, most>>20)
			}
		}
	}
}

// AbandonedError says that an evaluation did not end. It goes on in the background, so a process that meets it should end soon.
type AbandonedError struct{ message string }

func (e *AbandonedError) Error() string { return e.message }

func abandoned(format string, args ...any) error {
	return &AbandonedError{fmt.Sprintf(format, args...)}
}

// lookEvery is how often the memory is looked at; CUE doubles a text of a gigabyte in about as long.
const lookEvery = 20 * time.Millisecond

// held is the memory in objects, and in stacks, which a deep recursion fills.
func held() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
}

// inspect evaluates the named sites, or all, and explains what `cue vet -c` has against them.
func inspect(dir string, names []string) (*view, Problems, error) {
	v, err := newView(dir, names, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(v.sites) == 0 {
		return nil, nil, fmt.Errorf("%s: holds no site; write `lab: site.#Site & {…}` in a file of package clusters", dir)
	}
	var problems Problems
	wrong := false
	for i := range v.sites {
		s := &v.sites[i]
		s.err = s.value.Validate(vetOptions...)
		wrong = wrong || s.err != nil
	}
	if wrong {
		if problems, err = explain(v, dir, names); err != nil {
			return nil, nil, err
		}
	}
	if !wrong && len(names) == 0 {
		// Helper fields and definitions beside the sites, which no site may use.
		if err := v.root.Validate(vetOptions...); err != nil {
			return nil, nil, problemsOf(dir, err)
		}
	}
	problems = append(problems, misnamed(dir, v.sites)...)
	return v, problems.normalize(), nil
}

// evaluated is one site of the package, with what `cue vet -c` has against it.
type evaluated struct {
	name  string
	value cue.Value
	err   error
	// beside are the names of all sites of the package, its own included.
	beside []string
	// literal says that #of holds a value that is written there, and no other site.
	literal bool
}

// vetOptions are those of `cue vet -c`.
var vetOptions = []cue.Option{cue.Attributes(true), cue.Definitions(true), cue.Hidden(true), cue.Concrete(true)}

// sitesOf lists the package's regular fields in the order of their names. An error means that CUE could not even say which
// fields there are.
func sitesOf(root cue.Value) ([]evaluated, error) {
	fields, err := root.Fields()
	if err != nil {
		// A site in error makes the package one, but its fields can still be told apart unless it did not compile.
		if fields, err = root.Fields(cue.Optional(true), cue.Final()); err != nil {
			return nil, root.Err()
		}
	}
	var sites []evaluated
	for fields.Next() {
		sites = append(sites, evaluated{name: fields.Selector().Unquoted(), value: fields.Value()})
	}
	var names []string
	for _, s := range sites {
		names = append(names, s.name)
	}
	for i := range sites {
		sites[i].beside = names
	}
	slices.SortFunc(sites, func(a, b evaluated) int { return strings.Compare(a.name, b.name) })
	return sites, nil
}

// read finds and parses the package. Imports come from the repository alone: nothing is fetched.
func read(dir string) (*build.Instance, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: not a directory; give the directory that holds the sites", dir)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if problems, err := unreadable(dir); err != nil {
		return nil, err
	} else if len(problems) > 0 {
		return nil, problems
	}
	instances := load.Instances([]string{"."}, &load.Config{
		Dir: absolute,
		Env: append(os.Environ(), "CUE_REGISTRY=none"),
	})
	if len(instances) != 1 {
		return nil, fmt.Errorf("%s: holds %d CUE packages; sites are one, package clusters", dir, len(instances))
	}
	if err := instances[0].Err; err != nil {
		return nil, problemsOf(dir, err)
	}
	return instances[0], nil
}

// problemsOf gives errors of reading and compiling, which carry the user's positions themselves.
func problemsOf(dir string, err error) error {
	var problems Problems
	mended := map[string]bool{} // by line: CUE meets one mistake several times
	for _, e := range errors.Errors(err) {
		format, args := e.Msg()
		p := Problem{Message: strings.TrimSuffix(fmt.Sprintf(format, args...), ":"), Path: pathText(cleanPath(e.Path()))}
		if p.Message == "@embed" { // the reason is in the error that it wraps
			p.Message = strings.TrimSuffix(e.Error(), ":")
		}
		if strings.HasPrefix(p.Message, "import failed") {
			p.Message = strings.TrimSuffix(e.Error(), ":")
			p.Message = "cannot import: " + lastCause(p.Message)
			if way := filesOf(e); len(way) > 1 {
				p.Message += ": " + strings.Join(way, " → ")
			}
		}
		for _, pos := range append(errors.Positions(e), e.Position()) {
			if pos.IsValid() {
				p.File, p.Line, p.Column = display(pos.Filename()), pos.Line(), pos.Column()
				line := lineAt(pos)
				p.Mend = cmp.Or(mendSyntax(p.Message, line, p.Column), mendReference(p.Message, line, p.Column))
				break
			}
		}
		if p.Mend != "" {
			if at := fmt.Sprint(p.File, p.Line, p.Mend); mended[at] {
				continue
			} else {
				mended[at] = true
			}
		}
		switch {
		case strings.Contains(p.Message, schema.ImportPath):
			p.Mend = "berth init . puts this berth's copy of the schema into cue.mod"
		case strings.Contains(p.Message, "cannot find package") || strings.Contains(p.Message, "cannot find module"):
			p.Mend = "nothing is fetched: put the package under cue.mod/pkg, or remove the import"
		}
		if p.File == "" {
			p.File = display(dir)
		}
		problems = append(problems, p)
	}
	return problems.normalize()
}

// lastCause drops what CUE says of each package on the way to the one that could not be imported.
func lastCause(message string) string {
	if i := strings.LastIndex(message, "cannot find "); i >= 0 {
		return message[i:]
	}
	if i := strings.LastIndex(message, "import failed: "); i >= 0 {
		return message[i+len("import failed: "):]
	}
	return message
}

// filesOf are the files that an error speaks of, in its order.
func filesOf(e errors.Error) []string {
	var files []string
	for _, pos := range errors.Positions(e) {
		if file := display(pos.Filename()); pos.IsValid() && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

var directoryName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// misnamed finds what CUE cannot: fields that are no sites, and names that cannot be a directory's.
func misnamed(dir string, sites []evaluated) Problems {
	var problems Problems
	for _, s := range sites {
		pos := s.value.Pos()
		p := Problem{Path: s.name, File: display(dir)}
		if pos.IsValid() {
			p.File, p.Line, p.Column = display(pos.Filename()), pos.Line(), pos.Column()
		}
		switch {
		case !isSite(s.value):
			p.Message = "is not a site: nothing in it is checked; write `" + s.name + ": site.#Site & {…}`, or start its name with _ if it only helps other fields"
		case !directoryName.MatchString(s.name):
			p.Message = "cannot be a site's name, which is also a directory's; use at most 63 of a-z, 0-9 and -"
		default:
			continue
		}
		problems = append(problems, p)
	}
	return problems
}

// display shortens a file's path to one relative to the working directory, where it lies below it.
func display(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(wd, path)
	}
	short, err := filepath.Rel(wd, path)
	if err != nil || strings.HasPrefix(short, "..") {
		return path
	}
	return short
}

// Derive fills in what follows from other fields: a pool's card model, speed and memory are those of its hosts.
func Derive(s *site.Site) {
	for name, p := range s.Pools {
		if p.GPUs > 0 && len(p.Hosts) > 0 {
			g := s.Hosts[p.Hosts[0]].GPUs
			p.Model, p.Speed, p.GPUMemory = g.Model, g.Speed, g.Memory
			s.Pools[name] = p
		}
	}
}
