package shape

import (
	"fmt"
	"maps"
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"

	schema "github.com/berth-hpc/berth/cue"
)

// Site is the shape of a site, from the schema that this binary carries: no repository is needed.
func Site() (*Type, error) {
	files, err := schema.Files()
	if err != nil {
		return nil, err
	}
	instance := build.NewContext().NewInstance("cue", nil)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, err := parser.ParseFile(name, files[name], parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("the schema in this binary: %w", err)
		}
		if err := instance.AddSyntax(file); err != nil {
			return nil, fmt.Errorf("the schema in this binary: %w", err)
		}
	}
	value := cuecontext.New().BuildInstance(instance)
	if err := instance.Err; err != nil {
		return nil, fmt.Errorf("the schema in this binary: %w", err)
	}
	return Of(value.LookupPath(cue.ParsePath("#Site")))
}
