package load

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"cuelang.org/go/cue/parser"
)

// packageName is the package that berth init writes; another name works as long as all files have it.
const packageName = "clusters"

// unreadable finds what CUE passes over without a word or explains without a place: files that cannot be read, that are not
// UTF-8, that a merge left its marks in, and those that belong to no package or to another one, of which nothing is read.
func unreadable(dir string) (Problems, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.cue"))
	if err != nil {
		return nil, err
	}
	var problems Problems
	packages := make(map[string]string) // file to the name of its package
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "_") || strings.HasPrefix(filepath.Base(file), ".") {
			continue // CUE leaves these out by convention, and so do people
		}
		info, err := os.Stat(file)
		if err != nil {
			problems = append(problems, Problem{File: display(file), Message: "cannot be read: " + reason(err), Mend: "remove the file or mend what it links to"})
			continue
		}
		if info.IsDir() {
			if link, err := os.Lstat(file); err == nil && link.Mode()&os.ModeSymlink != 0 { // CUE reads links as files
				problems = append(problems, Problem{File: display(file), Message: "is a link to a directory", Mend: "remove it: sites are files"})
			}
			continue
		}
		if !info.Mode().IsRegular() { // reading a pipe would wait for ever
			problems = append(problems, Problem{File: display(file), Message: "is no file that can be read to its end (a pipe, a device or a socket)", Mend: "remove it: sites are files"})
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			problems = append(problems, Problem{File: display(file), Message: "cannot be read: " + reason(err)})
			continue
		}
		if p := unreadableText(text); p != nil {
			p.File = display(file)
			problems = append(problems, *p)
			continue
		}
		head, err := parser.ParseFile(file, text, parser.PackageClauseOnly)
		if err != nil {
			continue // reading the package says what is wrong, with its place
		}
		packages[file] = head.PackageName()
	}
	return append(problems, strangers(files, packages)...).normalize(), nil
}

// Outside finds files of the sites' package in the folder above dir: CUE reads them as parts of the sites, and nobody looks for
// them there.
func Outside(dir string) Problems {
	packageOf := func(file string) string {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			return ""
		}
		head, err := parser.ParseFile(file, nil, parser.PackageClauseOnly)
		if err != nil || strings.HasPrefix(filepath.Base(file), "_") || strings.HasPrefix(filepath.Base(file), ".") {
			return ""
		}
		return head.PackageName()
	}
	own := map[string]bool{}
	inside, _ := filepath.Glob(filepath.Join(dir, "*.cue"))
	for _, file := range inside {
		own[packageOf(file)] = true
	}
	var found Problems
	above, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Clean(dir)), "*.cue"))
	for _, file := range above {
		if name := packageOf(file); name != "" && own[name] {
			found = append(found, Problem{File: display(file), Line: 1, Column: 1,
				Message: fmt.Sprintf("is package %s outside of %s, and CUE reads it as a part of the sites", name, display(dir)),
				Mend:    "move it there, or remove it"})
		}
	}
	return found
}

// reason is an error of the file system without the path, which its reader sees already.
func reason(err error) string {
	if path, ok := err.(*os.PathError); ok {
		return path.Err.Error()
	}
	return err.Error()
}

// unreadableText finds bytes that are no text, and the marks of a merge.
func unreadableText(text []byte) *Problem {
	if !utf8.Valid(text) {
		at := 0
		for at < len(text) {
			r, size := utf8.DecodeRune(text[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		line, column := position(text, at)
		return &Problem{Line: line, Column: column, Message: fmt.Sprintf("byte 0x%02x is not UTF-8", text[at]), Mend: "save the file as UTF-8"}
	}
	for _, mark := range []string{"<<<<<<< ", ">>>>>>> "} {
		at := bytes.Index(text, []byte("\n"+mark)) + 1
		if at == 0 && !bytes.HasPrefix(text, []byte(mark)) {
			continue
		}
		line, column := position(text, at)
		return &Problem{Line: line, Column: column, Message: "a merge left its marks here", Mend: "choose one of the two sides and remove the lines <<<<<<<, ======= and >>>>>>>"}
	}
	return nil
}

// position is the line and column, from 1, of an offset.
func position(text []byte, offset int) (line, column int) {
	return 1 + bytes.Count(text[:offset], []byte("\n")), offset - bytes.LastIndexByte(text[:offset], '\n')
}

// strangers are the files of which CUE would read nothing: those without a package, and those of another one.
func strangers(files []string, packages map[string]string) Problems {
	count := make(map[string]int)
	for _, name := range packages {
		count[name]++
	}
	own := packageName
	if count[own] == 0 {
		names := slices.Sorted(func(yield func(string) bool) {
			for name := range count {
				if name != "" && !yield(name) {
					return
				}
			}
		})
		if len(names) > 0 {
			own = slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
		}
	}
	var problems Problems
	for _, file := range files {
		name, read := packages[file]
		p := Problem{File: display(file), Line: 1, Column: 1}
		switch {
		case !read || name == own:
			continue
		case name == "":
			p.Message = "has no package clause, so nothing in it is read"
			p.Mend = "begin the file with `package " + own + "`; if it is cut off or empty, restore or remove it"
		default:
			p.Message = fmt.Sprintf("is package %s, but the sites are package %s", name, own)
			p.Mend = "write `package " + own + "`, or move the file elsewhere"
		}
		problems = append(problems, p)
	}
	return problems
}
