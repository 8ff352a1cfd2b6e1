package load

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"

	"github.com/berth-hpc/berth/renderer/site"
)

// Every field of the schema reaches the renderer, and the renderer reads none that the schema does not have: a field that only
// one of them knows would be ignored without a word.
func TestSchemaAndTypesAgree(t *testing.T) {
	v, err := newView("../../clusters", []string{"lab"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	compareShape(t, "site", v.schema(), reflect.TypeFor[site.Site]())
}

// derivedFields are filled in by the loader and not by the schema.
var derivedFields = []string{"site.pools.<name>.model", "site.pools.<name>.speed", "site.pools.<name>.gpuMemory"}

// partitionPools is the one field that a partition over several pools has and a pool's own has not; one Go type serves both.
const partitionPools = "site.pools.<name>.partition.pools"

func compareShape(t *testing.T, path string, v cue.Value, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ.Kind() {
	case reflect.Map:
		compareShape(t, path+".<name>", descend(v, []string{"name"}), typ.Elem())
	case reflect.Slice:
		compareShape(t, path+"[]", descend(v, []string{"0"}), typ.Elem())
	case reflect.Struct:
		inSchema := fieldsOf(v)
		var inGo []string
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			inGo = append(inGo, name)
			field := path + "." + name
			if slices.Contains(derivedFields, field) || field == partitionPools {
				continue
			}
			if !slices.Contains(inSchema, name) {
				t.Errorf("%s: in %s but not in the schema", field, typ)
				continue
			}
			compareShape(t, field, descend(v, []string{name}), f.Type)
		}
		for _, name := range inSchema {
			if !slices.Contains(inGo, name) {
				t.Errorf("%s.%s: in the schema but not in %s", path, name, typ)
			}
		}
	}
}
