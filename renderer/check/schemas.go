package check

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
)

// kubernetes is made by generate.go from Kubernetes' own description of its API.
//
//go:embed schemas/kubernetes-1.34.json
var kubernetes []byte

const schemaURL = "https://berth-hpc.github.io/schemas/kubernetes-1.34.json"

// podTemplate is the definition that a pool's template must have too; the pool's own definition leaves it open.
const podTemplate = "io.k8s.api.core.v1.PodTemplateSpec"

// kinds maps "apps/v1 Deployment" to a definition's name.
var kinds = sync.OnceValues(func() (map[string]string, error) {
	var file struct {
		Kinds map[string]string `json:"kinds"`
	}
	return file.Kinds, json.Unmarshal(kubernetes, &file)
})

// schemas compiles definitions once in a process, when they are first asked for.
type schemas struct {
	lock     sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

var compiledSchemas = sync.OnceValues(func() (*schemas, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(kubernetes))
	if err != nil {
		return nil, err
	}
	s := &schemas{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	return s, s.compiler.AddResource(schemaURL, document)
})

// typed are the kinds of Flux and of ours, which Go types describe: a field that the type does not have is an error.
var typed = map[string]func() any{
	kustomizev1.GroupVersion.String() + " Kustomization": func() any { return &kustomizev1.Kustomization{} },
	helmv2.GroupVersion.String() + " HelmRelease":        func() any { return &helmv2.HelmRelease{} },
	sourcev1.GroupVersion.String() + " GitRepository":    func() any { return &sourcev1.GitRepository{} },
	sourcev1.GroupVersion.String() + " HelmRepository":   func() any { return &sourcev1.HelmRepository{} },
	sourcev1.GroupVersion.String() + " HelmChart":        func() any { return &sourcev1.HelmChart{} },
	sourcev1.GroupVersion.String() + " OCIRepository":    func() any { return &sourcev1.OCIRepository{} },
	sourcev1.GroupVersion.String() + " Bucket":           func() any { return &sourcev1.Bucket{} },
	v1alpha1.GroupVersion.String() + " SlurmConfig":      func() any { return &v1alpha1.SlurmConfig{} },
	v1alpha1.GroupVersion.String() + " WorkerPool":       func() any { return &v1alpha1.WorkerPool{} },
}

// violation is one field that is not as the API has it.
type violation struct{ field, message string }

// validate compares an object with the API's description of its kind. A kind that neither Kubernetes 1.34 nor Flux nor Berth
// has is a violation of its own, unless defined says that the site brings its definition.
func (s *schemas) validate(o manifest.Object, defined map[string]bool) ([]violation, error) {
	id := o.APIVersion() + " " + o.Kind()
	content := o.Content()
	if o.Kind() == "Secret" {
		if _, sealed := content["sops"]; sealed { // SOPS' own block is gone when Flux applies it
			content = without(content, "sops")
		}
	}
	if make, ok := typed[id]; ok {
		found := strict(content, make())
		if o.Kind() != "WorkerPool" {
			return found, nil
		}
		spec, _ := content["spec"].(map[string]any)
		of, err := s.against(podTemplate, spec["template"], "spec.template")
		return append(found, of...), err
	}
	known, err := kinds()
	if err != nil {
		return nil, err
	}
	if name, ok := known[id]; ok {
		return s.against(name, content, "")
	}
	if defined[id] {
		return nil, nil
	}
	return []violation{{"apiVersion", fmt.Sprintf("Kubernetes 1.34 has no %s, and no layer defines it", id)}}, nil
}

func without(content map[string]any, key string) map[string]any {
	out := make(map[string]any, len(content))
	for k, v := range content {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// strict decodes into a Go type and refuses fields that it does not have.
func strict(content map[string]any, into any) []violation {
	text, err := json.Marshal(content)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(into)
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return []violation{{wrong.Field, fmt.Sprintf("is a %s, not a %s", wrong.Value, wrong.Type)}}
	}
	return []violation{{"", strings.TrimPrefix(err.Error(), "json: ")}}
}

// against validates a value by one definition.
func (s *schemas) against(name string, value any, at string) ([]violation, error) {
	schema, err := s.definition(name)
	if err != nil {
		return nil, err
	}
	var wrong *jsonschema.ValidationError
	if err := schema.Validate(value); errors.As(err, &wrong) {
		return leaves(wrong, at), nil
	} else if err != nil {
		return nil, err
	}
	return nil, nil
}

func (s *schemas) definition(name string) (*jsonschema.Schema, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if schema, done := s.compiled[name]; done {
		return schema, nil
	}
	schema, err := s.compiler.Compile(schemaURL + "#/$defs/" + name)
	if err != nil {
		return nil, fmt.Errorf("the description of %s: %w", name, err)
	}
	s.compiled[name] = schema
	return schema, nil
}

var english = message.NewPrinter(language.English)

// leaves are the errors that have no deeper cause.
func leaves(e *jsonschema.ValidationError, at string) []violation {
	if len(e.Causes) == 0 {
		field := strings.Join(append(strings.FieldsFunc(at, func(r rune) bool { return r == '.' }), e.InstanceLocation...), ".")
		return []violation{{field, e.ErrorKind.LocalizedString(english)}}
	}
	var found []violation
	for _, cause := range e.Causes {
		found = append(found, leaves(cause, at)...)
	}
	return found
}
